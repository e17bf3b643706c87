package flows_test

import (
	"bytes"
	"context"
	"net/netip"
	"testing"

	"fairlead.dev/fairlead/e2e/bench/flows"
)

// TestFlows: the server says where it was reached, a measurement counts every flow, and
// an address that nobody listens on is an error.
func TestFlows(t *testing.T) {
	const port = 18080
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- flows.Serve(ctx, port, 0, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	for _, address := range []string{"127.0.0.1", "127.9.8.7"} {
		to := netip.AddrPortFrom(netip.MustParseAddr(address), port)
		answer, err := flows.Ask(to)
		for n := 0; err != nil && n < 100; n++ { // it gives a busy server 50 ms
			answer, err = flows.Ask(to)
		}
		if err != nil || answer.Endpoint != to.Addr() || answer.Connect > answer.Whole {
			t.Errorf("ask %s: %+v, %v", to, answer, err)
		}
	}
	result, err := flows.Measure(netip.MustParseAddrPort("127.0.0.1:18080"), 2000, 0)
	if err != nil || result.PerSecond <= 0 || result.Whole <= 0 || result.Connect > result.Whole {
		t.Errorf("measure: %+v, %v", result, err)
	}
	var text bytes.Buffer
	if err := result.Write(&text); err != nil {
		t.Error(err)
	}
	if again, err := flows.ParseResult(text.Bytes()); err != nil || again != result {
		t.Errorf("written and read: %+v, %v, want %+v", again, err, result)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := flows.Measure(netip.MustParseAddrPort("127.0.0.1:18080"), 10, 0); err == nil {
		t.Error("flows to a server that is gone are no error")
	}
}
