package product

import (
	"context"
	"errors"
	"fmt"
	"os"

	"fairlead.dev/fairlead/e2e/lab"
)

// PodNetwork is an environment variable: the pod network of labs that ask for none, see [lab.PodNetworks].
const PodNetwork = "FAIRLEAD_POD_NETWORK"

// OlderKubernetes is an environment variable: if it is set, all labs run the oldest Kubernetes that is supported.
const OlderKubernetes = "FAIRLEAD_OLDER_KUBERNETES"

// ErrMachine says that this machine cannot have a lab.
var ErrMachine = errors.New("this machine cannot have a lab")

// Up starts a lab. A lab that an earlier run left behind goes down first. After an
// error that is not [ErrMachine] something may be left up. Parts are what the caller
// needs built besides.
func Up(ctx context.Context, options lab.Options, parts ...lab.Part) (*Cluster, error) {
	if options.PodNetwork == "" {
		options.PodNetwork = lab.PodNetwork(os.Getenv(PodNetwork))
	}
	options.Older = options.Older || os.Getenv(OlderKubernetes) != ""
	if absent := errors.Join(append(lab.Missing(), lab.Built(append(parts, options.Parts()...)...))...); absent != nil {
		return nil, fmt.Errorf("%w: %w", ErrMachine, absent)
	}
	if err := lab.Down(ctx); err != nil {
		return nil, err
	}
	l, err := lab.Up(ctx, options)
	if err != nil {
		return nil, err
	}
	return New(l)
}

// Start is Up without kube-proxy, and installs Fairlead with Helm 3; the demo uses Helm 4. An error
// is as of Up.
func Start(ctx context.Context, options lab.Options, parts ...lab.Part) (*Cluster, error) {
	c, err := Up(ctx, options, append(parts, lab.Helm3)...)
	if err != nil {
		return nil, err
	}
	if err := c.LoadImage(ctx); err != nil {
		return nil, err
	}
	return c, c.Install(ctx, 3)
}
