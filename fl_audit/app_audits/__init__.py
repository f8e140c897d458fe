"""Audits of other people's code: strategies, whole apps, trainings with Opacus, running federations."""
