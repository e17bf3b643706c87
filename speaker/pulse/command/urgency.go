package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// way is how the kernel is asked to run a thread.
type way struct {
	name string
	unix.SchedAttr
}

// ways are those by which pulse may run before other processes, the best one first. A busy
// machine would else keep hellos back for longer than a detection time, and other nodes
// take that for death. Both need CAP_SYS_NICE.
//
// SCHED_RR has the lowest of its priorities: before all ordinary processes, and behind
// whatever else was thought to be urgent. A control group of version 1 that was given no
// cpu.rt_runtime_us has none of it on kernels with RT_GROUP_SCHED, and so has no container.
//
// SCHED_DEADLINE asks no control group. It needs all CPUs of the machine to be allowed, and
// that such threads together are promised no more than the machine has. Each of ours is
// promised a twenty-fifth of a CPU, and gets more while others leave theirs
// (SCHED_FLAG_RECLAIM). The period is how late it may be once it has used that up.
//
// There is no third way: inside of a control group of its own neither the highest weight nor
// a short slice makes a thread run sooner.
func ways() []way {
	const (
		realtimePriority = 1
		runtime, period  = 200 * time.Microsecond, 5 * time.Millisecond
	)
	return []way{
		{"SCHED_RR", unix.SchedAttr{Policy: unix.SCHED_RR, Priority: realtimePriority}},
		{"SCHED_DEADLINE", unix.SchedAttr{
			Policy: unix.SCHED_DEADLINE, Flags: unix.SCHED_FLAG_RESET_ON_FORK | unix.SCHED_FLAG_RECLAIM,
			Runtime: uint64(runtime), Deadline: uint64(period), Period: uint64(period),
		}},
	}
}

const (
	processors = 2 // that run Go code at a time at most, each with a thread
	threads    = 4 // that may wait in the kernel meanwhile
)

// raise makes as many threads as the process will ever use. The kernel starts a thread
// that a deadline thread makes as an ordinary one; a busy machine might not run that for
// seconds, in which it can hold up all others.
func raise() {
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), processors))
	var made, ended sync.WaitGroup
	const all = processors + threads
	made.Add(all)
	for range all {
		ended.Go(func() {
			runtime.LockOSThread() // each needs one of its own until all are there
			defer runtime.UnlockOSThread()
			made.Done()
			made.Wait()
		})
	}
	ended.Wait()
}

// urging is how often it is looked for threads that have begun since.
const urging = time.Second

// haste has every thread of this process run by the best of the ways that the kernel grants.
type haste struct {
	ways []way
	by   map[int]int // which way, by thread; len(ways): none
	told string
	log  *slog.Logger
}

// keep looks after new threads until the context ends.
func (h *haste) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(urging):
			h.urge()
		}
	}
}

// urge sees to all threads that it has not seen to yet, and those that they start meanwhile,
// and logs by which way pulse is run when that changes.
func (h *haste) urge() {
	var refused error // what kept the worst off from a better way
	worst := 0
	for more := true; more; {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			h.tell("as before", fmt.Errorf("listing the own threads: %w", err))
			return
		}
		by := make(map[int]int, len(threads))
		more = false
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil {
				continue
			}
			way, known := h.by[id]
			if !known {
				more = true
				way, err = h.thread(id)
				if way > worst {
					refused = err
				}
			}
			by[id], worst = way, max(worst, way)
		}
		h.by = by
	}
	if worst < len(h.ways) {
		h.tell(h.ways[worst].name, refused)
		return
	}
	h.tell("as any other process", refused)
}

// thread has the kernel run a thread by the first way that it grants, and says which one and
// why it is not the first.
func (h *haste) thread(id int) (way int, refused error) {
	for i, way := range h.ways {
		attr := way.SchedAttr
		attr.Size = unix.SizeofSchedAttr
		err := unix.SchedSetAttr(id, &attr, 0)
		if err == nil || errors.Is(err, unix.ESRCH) { // a thread that has ended needs nothing
			return i, refused
		}
		refused = errors.Join(refused, fmt.Errorf("%s: %w", way.name, err))
	}
	return len(h.ways), refused
}

// tell logs once.
func (h *haste) tell(by string, refused error) {
	if h.told == by {
		return
	}
	h.told = by
	h.log.Info("how the kernel runs pulse, that its hellos be in time where a node is busy", "by", by, "refused", refused)
}
