package lab

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// Down ends every process that the lab started and removes its namespaces,
// cgroups and state, whatever of them there is. The state, which says what was
// started, goes only when all else has. An error names what is left.
func Down(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	c, err := openCache()
	if err != nil {
		return err
	}
	groups, err := findCgroups()
	if err != nil {
		return err
	}
	procs := processes{records: c.state("processes"), logs: c.state("log")}
	names, err := procs.names("")
	if err != nil {
		return err
	}
	errs := []error{procs.stop(ctx, syscall.SIGKILL, names...)}
	for _, ns := range namespaces() {
		errs = append(errs, ns.remove())
	}
	errs = append(errs, groups.remove(ctx, ""), os.RemoveAll(runDir))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(c.state())
}

// namespaces are all that any lab may have.
func namespaces() []namespace {
	all := []namespace{namespaceOf(lanName), namespaceOf(controlPlaneName), namespaceOf(clientName), namespaceOf(routerName)}
	for n := range maxNodes {
		all = append(all, namespaceOf(nodeName(n+1)))
	}
	return all
}
