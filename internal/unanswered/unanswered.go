// Package unanswered says why a question to the API server had no answer, and what to do about it.
package unanswered

import (
	"errors"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Why is the error in the words of who caused it, and what an operator can do. What was asked is
// not said: of several questions another one fails each time, and the same would be told again.
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

// IsUnreached tells whether the question did not get there, or its answer did not come back.
func IsUnreached(err error) bool {
	_, is := errors.AsType[*url.Error](err)
	return is
}
