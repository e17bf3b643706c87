package product

import (
	"context"
	"errors"
	"fmt"

	"fairlead.dev/fairlead/e2e/lab"
)

// ErrMachine says that this machine cannot have a lab.
var ErrMachine = errors.New("this machine cannot have a lab")

// Start starts a lab without kube-proxy and installs Fairlead into it with Helm 3; the
// demo uses Helm 4. A lab that an earlier run left behind goes down first. After an
// error that is not [ErrMachine] something may be left up. Parts are what the caller
// needs built besides.
func Start(ctx context.Context, options lab.Options, parts ...lab.Part) (*Cluster, error) {
	if absent := errors.Join(append(lab.Missing(), lab.Built(parts...))...); absent != nil {
		return nil, fmt.Errorf("%w: %w", ErrMachine, absent)
	}
	if err := lab.Down(ctx); err != nil {
		return nil, err
	}
	l, err := lab.Up(ctx, options)
	if err != nil {
		return nil, err
	}
	c, err := New(l)
	if err != nil {
		return nil, err
	}
	if err := c.LoadImage(ctx); err != nil {
		return nil, err
	}
	return c, c.Install(ctx, 3)
}
