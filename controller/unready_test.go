package main

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"fairlead.dev/fairlead/controller/leasefence"
	"fairlead.dev/fairlead/internal/testenv/testlog"
)

// Who installs the chart without kube-proxy and without saying where the API server is reads in the
// controller's log what to do about it, and nothing of CRDs, which are there.
func TestAnAPIServerThatDoesNotAnswerIsTold(t *testing.T) {
	nobody := &rest.Config{Host: "https://127.0.0.1:1"}
	o := options{namespace: defaultNamespace, metricsAddress: "0", probeAddress: "0", lease: leasefence.Standard()}
	err := control(t.Context(), nobody, o, prometheus.NewRegistry(), testlog.New(t))
	if err == nil {
		t.Fatal("the controller ran without an API server")
	}
	for text, told := range map[string]bool{nobody.Host: true, "refused": true, "controller.apiServer.host": true, "ClusterIP": true, "CRD": false} {
		if strings.Contains(err.Error(), text) != told {
			t.Errorf("%q is told: %v, want %v: %v", text, !told, told, err)
		}
	}
}
