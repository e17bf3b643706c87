// Package apihint says why a request to the API server failed, and what to do about it.
package apihint

import (
	"errors"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Why returns the reason that an error gives, and a hint for the operator. The request is left
// out of the reason: another one of several fails each time, and the log would repeat it.
func Why(err error) (why, hint string) {
	if refused, is := errors.AsType[*apierrors.StatusError](err); is {
		return refused.Error(), "see what the API server says in its log"
	}
	if asked, is := errors.AsType[*url.Error](err); is {
		return asked.Err.Error(), "the Helm values apiServer.host and apiServer.port must name an address of it that this node " +
			"reaches without Service forwarding; without them it is asked at its ClusterIP, which leads nowhere where no other proxy forwards"
	}
	return err.Error(), "the API server may be starting"
}

// IsUnreached reports whether the request, or its answer, was lost on the way.
func IsUnreached(err error) bool {
	_, is := errors.AsType[*url.Error](err)
	return is
}
