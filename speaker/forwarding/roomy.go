package forwarding

import (
	"context"
	"errors"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack/sysctl"
	"fairlead.dev/fairlead/speaker/outcome"
)

// roomy is what forwards together with the capacity of the connection table, which is the
// same for all backends.
type roomy struct {
	Forwarder
	table *sysctl.Table
}

// Apply implements Backend. The rules come first: on a machine that has just booted, they
// are what has the kernel load the module whose settings these are.
func (r roomy) Apply(ctx context.Context, want desired.Forwarding) (outcome.Missing, error) {
	missing, err := r.Forwarder.Apply(ctx, want)
	return missing, errors.Join(err, r.table.Apply())
}
