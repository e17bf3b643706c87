package objects

import (
	"os"
	"testing"

	"fairlead.dev/fairlead/internal/testenv/apiserver"
)

// Serve starts an API server until the test ends that takes tens of thousands of Services
// in minutes. An error says that the environment could not be set.
func Serve(tb testing.TB) (*apiserver.Server, error) {
	tb.Helper()
	measuredAsUsual, err := collectLate()
	if err != nil {
		return nil, err
	}
	server := apiserver.Start(tb, apiserver.ManyServices)
	return server, measuredAsUsual()
}

// collectLate has the programs that are started before it is undone collect garbage late:
// the API server and etcd, which have the memory. Creating many Services makes little else.
func collectLate() (undo func() error, err error) {
	const name, percent = "GOGC", "400"
	before := os.Getenv(name) // empty is as good as unset
	return func() error { return os.Setenv(name, before) }, os.Setenv(name, percent)
}
