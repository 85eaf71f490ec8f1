// Browsers start no worker from a file: a page opened from disk searches in a hidden frame instead.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<body></body>";
      this.loaded = new Promise((resolve, reject) => {
        frame.onload = () => {
          const { contentWindow, contentDocument } = frame;
          contentWindow.postMessage = (data) =>
            this.dispatchEvent(new MessageEvent("message", { data }));
          const script = contentDocument.createElement("script");
          script.onload = () => resolve(contentWindow);
          script.onerror = reject;
          script.src = new URL(url, document.baseURI);
          contentDocument.body.append(script);
        };
      });
      document.documentElement.append(frame);
    }

    postMessage(data) {
      this.loaded.then((frame) => frame.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
