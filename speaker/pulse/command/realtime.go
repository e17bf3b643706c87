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

// policy is how the kernel is asked to schedule a thread.
type policy struct {
	name string
	unix.SchedAttr
}

// policies returns those by which pulse runs before other processes, the best one first. A busy
// machine would else keep hellos back for longer than a detection time, and other nodes
// take that for death. Both need CAP_SYS_NICE.
//
// SCHED_RR has the lowest of its priorities: before all ordinary processes, and behind
// other real-time processes. A control group of version 1 that was given no
// cpu.rt_runtime_us has none of it on kernels with RT_GROUP_SCHED, and so has no container.
//
// SCHED_DEADLINE asks no control group. It needs all CPUs of the machine to be allowed, and
// that such threads together are promised no more than the machine has. Each of ours is
// promised a twenty-fifth of a CPU, and gets more while others leave theirs
// (SCHED_FLAG_RECLAIM). The period is how late it may be once it has used that up.
//
// There is no third one: inside of a control group of its own neither the highest weight nor
// a short slice makes a thread run sooner.
func policies() []policy {
	const (
		realtimePriority = 1
		runtime, period  = 200 * time.Microsecond, 5 * time.Millisecond
	)
	return []policy{
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

// startThreads makes as many threads as the process will ever use. The kernel starts a thread
// that a deadline thread makes as an ordinary one; a busy machine might not run that for
// seconds, in which it can hold up all others.
func startThreads() {
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

// rescheduleEvery is how often new threads are looked for.
const rescheduleEvery = time.Second

// realtime schedules every thread of this process by the best of the policies that the kernel grants.
type realtime struct {
	policies []policy
	by       map[int]int // which policy, by thread; len(policies): none
	logged   string
	log      *slog.Logger
}

// run schedules new threads, and those that could be scheduled better, until the context ends.
func (r *realtime) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(rescheduleEvery):
			r.schedule()
		}
	}
}

// schedule schedules all threads that do not have the best policy yet, and those that they start meanwhile,
// and logs the policy when that changes. What the kernel refuses it may grant later: other processes may have been
// promised all that it can promise to deadline threads.
func (r *realtime) schedule() {
	var refused error // what kept the worst off from a better policy
	worst := 0
	for more := true; more; {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			r.logOnce("as before", fmt.Errorf("listing the own threads: %w", err))
			return
		}
		by := make(map[int]int, len(threads))
		more = false
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil {
				continue
			}
			chosen, known := r.by[id]
			if !known {
				more, chosen = true, len(r.policies)
			}
			if chosen, err = r.scheduleThread(id, chosen); chosen > worst {
				refused = err
			}
			by[id], worst = chosen, max(worst, chosen)
		}
		r.by = by
	}
	if worst < len(r.policies) {
		r.logOnce(r.policies[worst].name, refused)
		return
	}
	r.logOnce("as any other process", refused)
}

// scheduleThread has the kernel schedule a thread by the first policy before the one that it has which the kernel
// grants, and returns which one it has then and the errors of those before it.
func (r *realtime) scheduleThread(id, has int) (chosen int, refused error) {
	for i, policy := range r.policies[:has] {
		attr := policy.SchedAttr
		attr.Size = unix.SizeofSchedAttr
		err := unix.SchedSetAttr(id, &attr, 0)
		if err == nil || errors.Is(err, unix.ESRCH) { // a thread that has ended needs nothing
			return i, refused
		}
		refused = errors.Join(refused, fmt.Errorf("%s: %w", policy.name, err))
	}
	return has, refused
}

func (r *realtime) logOnce(by string, refused error) {
	if r.logged == by {
		return
	}
	r.logged = by
	r.log.Info("how the kernel runs pulse, that its hellos be in time where a node is busy", "by", by, "refused", refused)
}
