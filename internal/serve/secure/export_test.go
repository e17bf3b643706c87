package secure

import (
	"log/slog"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// ReviewedAt is Reviewed by another clock.
func ReviewedAt(now func() time.Time, config *rest.Config, log *slog.Logger, handler http.Handler) (http.Handler, error) {
	r, err := newReviewer(config, log, handler)
	r.now = now
	return r, err
}
