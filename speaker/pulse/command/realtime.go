package command

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// realtimePriority is the lowest of SCHED_RR: before all ordinary processes, and behind
// whatever else was thought to be urgent.
const realtimePriority = 1

// beRealtime has the kernel run every thread of this process before ordinary ones. A busy
// machine would else keep hellos back for longer than a detection time, and other nodes
// take that for death. Threads that come later inherit it. It needs CAP_SYS_NICE, and the
// control group must be allowed to (with RT_GROUP_SCHED, cpu.rt_runtime_us).
func beRealtime() error {
	for done := map[int]bool{}; ; {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("listing the own threads: %w", err)
		}
		more := false
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil || done[id] {
				continue
			}
			attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: realtimePriority}
			err = unix.SchedSetAttr(id, &attr, 0)
			if err != nil && !errors.Is(err, unix.ESRCH) { // a thread that has ended needs nothing
				return fmt.Errorf("setting SCHED_RR: %w", err)
			}
			done[id], more = true, true
		}
		if !more {
			return nil // no thread is left that a thread without it could have made meanwhile
		}
	}
}
