// Package apihint says why a request to the API server failed, and what to do about it.
package apihint

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
)

// InstallCRDs is what to do where the cluster lacks our kinds.
const InstallCRDs = "install the CRDs of this release: by helm upgrade with crds.install true or with the chart fairlead-crds, or, " +
	"where something else installs them, by what helm template --show-only templates/crds.yaml writes and kubectl apply --server-side takes"

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
		if name, is := errors.AsType[*net.DNSError](err); is && !name.IsNotFound { // its text has the port that was asked from
			return fmt.Sprintf("lookup %s: no DNS server answers", name.Name), about(err) + where
		}
		return asked.Err.Error(), about(err) + where
	}
	return err.Error(), "the API server may be starting"
}

// about returns what the error tells of the address that was asked, "" if nothing.
func about(err error) string {
	if name, is := errors.AsType[*net.DNSError](err); is {
		return fmt.Sprintf("%s is no name that resolves here; in a manifest of the release it is the value of KUBERNETES_SERVICE_HOST, where the address "+
			"of an API server has to stand: ", name.Name)
	}
	if _, is := errors.AsType[x509.UnknownAuthorityError](err); is {
		return "what answers there has a certificate of another authority than this cluster's, as an API server of another cluster has, or a proxy to one: "
	}
	if of, is := errors.AsType[x509.HostnameError](err); is {
		return fmt.Sprintf("the certificate of what answers there is not for %s: have the API server's name it, as by certSANs of kubeadm; or ", of.Host)
	}
	if of, is := errors.AsType[x509.CertificateInvalidError](err); is && of.Reason == x509.Expired {
		return "the certificate of what answers there is not valid at this time: renew it, or set the clock of this node; or "
	}
	if _, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		return "what answers there has no certificate of this cluster for that address: "
	}
	return ""
}

// oldest is the version of Kubernetes from which API servers take the rules of the CRDs.
const oldest = "1.31"

// Outdated returns that the API server is too old, and what to do; "" if it is not, or does not say.
func Outdated(api discovery.ServerVersionInterface) string {
	info, err := api.ServerVersion()
	if err != nil {
		return ""
	}
	is, err := version.ParseGeneric(info.GitVersion)
	if err != nil || is.AtLeast(version.MustParseGeneric(oldest)) {
		return ""
	}
	return fmt.Sprintf("the API server is of Kubernetes %s, which refuses the CRDs of Fairlead: upgrade the cluster to %s or newer", info.GitVersion, oldest)
}
