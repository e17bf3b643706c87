package serve

import "net/http"

// Probes returns the handler of the paths of metrics, of /healthz and /readyz. ready returns an error that says what the process
// waits for, nil once it is ready.
func Probes(metrics map[string]http.Handler, ready func() error) http.Handler {
	mux := http.NewServeMux()
	for path, handler := range metrics {
		mux.Handle(path, handler)
	}
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	return mux
}
