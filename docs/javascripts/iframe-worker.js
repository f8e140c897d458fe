// Browsers start no worker for a page that is read from the disk: there the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe"), close = "</" + "script>"
      frame.hidden = true
      frame.title = "search"
      frame.srcdoc = `<script>postMessage = data => parent.dispatchEvent(new CustomEvent("from-worker", { detail: data }))${close}` +
        `<script src="${url}">${close}`
      this.ready = new Guarantee(loaded => { frame.onload = () => loaded(frame.contentWindow) })
      addEventListener("from-worker", said => this.dispatchEvent(new MessageEvent("message", { data: said.detail })))
      document.body ? document.body.append(frame) : addEventListener("DOMContentLoaded", () => document.body.append(frame))
    }
    postMessage(data) {
      this.ready.then(window => window.dispatchEvent(new window.MessageEvent("message", { data })))
    }
  }
}
