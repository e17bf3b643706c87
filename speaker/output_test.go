package main

import (
	"os"
	"os/exec"
	"testing"
)

// runsMain is an environment variable: the test binary becomes the speaker.
const runsMain = "FAIRLEAD_RUNS_MAIN"

// TestOutputThatNothingReads ends no speaker: when a machine shuts down, what reads it may end first, and there is
// still to be handed over.
func TestOutputThatNothingReads(t *testing.T) {
	if os.Getenv(runsMain) != "" {
		os.Args = []string{"speaker", "--help"}
		main()
		os.Exit(0)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = read.Close()
	speaker := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOutputThatNothingReads$")
	speaker.Env = append(os.Environ(), runsMain+"=1")
	speaker.Stdout, speaker.Stderr = write, write
	if err := speaker.Run(); err != nil {
		t.Errorf("the speaker writes its usage and ends by: %v", err)
	}
}
