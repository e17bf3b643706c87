package bgp

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	gobgplog "github.com/osrg/gobgp/v3/pkg/log"
)

// serverLog is the logger of one GoBGP server. It logs errors as such and all else at debug level, since
// sessions log their own changes, and does not end the process as GoBGP's own logger does at Panic and Fatal.
type serverLog struct {
	log *slog.Logger
	// acceptFailed is set when the server has stopped accepting connections, as it does, for good, at the first
	// one that fails, such as while the process has all the files that it may have. GoBGP tells its log alone.
	acceptFailed atomic.Bool
}

func (l *serverLog) Panic(msg string, fields gobgplog.Fields) { l.pass(slog.LevelError, msg, fields) }

func (l *serverLog) Fatal(msg string, fields gobgplog.Fields) { l.pass(slog.LevelError, msg, fields) }

func (l *serverLog) Error(msg string, fields gobgplog.Fields) { l.pass(slog.LevelError, msg, fields) }

func (l *serverLog) Info(msg string, fields gobgplog.Fields) { l.pass(slog.LevelDebug, msg, fields) }

func (l *serverLog) Debug(msg string, fields gobgplog.Fields) { l.pass(slog.LevelDebug, msg, fields) }

// Warn logs at debug level, and notes that the server accepts no more connections.
func (l *serverLog) Warn(msg string, fields gobgplog.Fields) {
	if msg == "Failed to AcceptTCP" {
		l.acceptFailed.Store(true)
	}
	l.pass(slog.LevelDebug, msg, fields)
}

// SetLevel does nothing: the level is that of the slog handler.
func (l *serverLog) SetLevel(gobgplog.LogLevel) {}

// GetLevel returns debug if anything takes that, so that GoBGP does not render what nothing does.
func (l *serverLog) GetLevel() gobgplog.LogLevel {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		return gobgplog.DebugLevel
	}
	return gobgplog.WarnLevel
}

func (l *serverLog) pass(level slog.Level, msg string, fields gobgplog.Fields) {
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	attrs := make([]slog.Attr, 0, len(fields))
	for key, value := range fields {
		attrs = append(attrs, slog.String(key, fmt.Sprint(value)))
	}
	l.log.LogAttrs(context.Background(), level, "GoBGP says", append(attrs, slog.String("message", msg))...)
}
