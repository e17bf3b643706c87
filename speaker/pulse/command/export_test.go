package command

import (
	"context"
	"io"
	"log/slog"
)

// RunSinceLong is Run on a machine that has been up for long, whatever the age of the one that tests.
func RunSinceLong(ctx context.Context, args []string, stderr io.Writer) error {
	return run(ctx, func(*slog.Logger) bool { return false }, args, stderr)
}
