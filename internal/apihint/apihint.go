// Package apihint says why a request to the API server failed, and what to do about it.
package apihint

import (
	"crypto/tls"
	"errors"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// What has to be set where a program does not reach the API server.
const (
	OfSpeakers = "the Helm values apiServer.host and apiServer.port must name an address of it that this node " +
		"reaches without Service forwarding; without them it is asked at its ClusterIP, which leads nowhere where no other proxy forwards"
	OfController = "without the Helm values controller.apiServer.host and controller.apiServer.port it is asked at its ClusterIP, which kube-proxy " +
		"or the speakers must serve first: see why they do not, as their own value apiServer.host may be wrong"
)

// Why returns the reason that an error gives, and a hint for the operator, which is where if the API server was not reached. The request is left
// out of the reason: another one of several fails each time, and the log would repeat it.
func Why(err error, where string) (why, hint string) {
	if refused, is := errors.AsType[*apierrors.StatusError](err); is {
		return refused.Error(), "see what the API server says in its log"
	}
	if asked, is := errors.AsType[*url.Error](err); is {
		if _, is := errors.AsType[*tls.CertificateVerificationError](err); is {
			where = "what answers there has no certificate of this cluster for that address: " + where
		}
		return asked.Err.Error(), where
	}
	return err.Error(), "the API server may be starting"
}

// IsUnreached reports whether the request, or its answer, was lost on the way.
func IsUnreached(err error) bool {
	_, is := errors.AsType[*url.Error](err)
	return is
}
