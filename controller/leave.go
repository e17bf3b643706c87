package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"fairlead.dev/fairlead/controller/uninstall"
)

// answerWithin is how long the API server may take for an answer.
const answerWithin = 15 * time.Second

// leave takes the addresses out of the statuses of Services, as the chart's hook before an uninstall. An error
// says how to uninstall without.
func leave(ctx context.Context, args []string, namespace string) error {
	if len(args) > 0 {
		return fmt.Errorf("controller uninstall takes no argument %q", args[0])
	}
	cluster, err := config.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	cluster.Timeout = answerWithin
	c, err := client.New(cluster, client.Options{Scheme: clientgoscheme.Scheme})
	if err == nil {
		log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
		err = uninstall.Run(ctx, c, client.ObjectKey{Namespace: namespace, Name: leaseName}, log)
	}
	if err != nil {
		return fmt.Errorf("%w; Services keep addresses in their statuses that nobody will answer for: try again, or uninstall with "+
			"helm uninstall --no-hooks and clear them as docs/guide/restores.md shows", err)
	}
	return nil
}
