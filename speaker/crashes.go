package main

import (
	"log/slog"
	"path/filepath"
	"time"

	"fairlead.dev/fairlead/speaker/bgp"
	"fairlead.dev/fairlead/speaker/lastwords"
)

// crashes are those that routers have brought about since the pod began. They are kept
// beside the socket of pulse, which outlives this container.
func crashes(pulseSocket string, log *slog.Logger) lastwords.Record {
	record, router, err := lastwords.Recall(filepath.Dir(pulseSocket), bgp.CrashLabel, time.Now())
	if router != "" {
		log.Error("the speaker that was here before was ended by what a router sent; it is left alone for a while",
			"router", router, "times", record[router].Times, "until", record[router].Until())
	}
	if err != nil {
		log.Warn("what ends this process may not be known to the next one", "error", err)
	}
	return record
}
