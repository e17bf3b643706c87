package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/fairlead/e2e/lab"
)

// What is measured by layer 2.
const (
	createdLayer2 measure = "Service created → first answer"
	cable         measure = "cable of the answering node pulled: longest gap"
	cableCluster  measure = "the same under policy Cluster: until the last flow that was lost"
	cableNoAPI    measure = "cable pulled while the API server is stopped: longest gap"
	killed        measure = "processes of the answering speaker killed: longest gap"
	restarted     measure = "speakers restarted one after another, as by an upgrade: longest gap"
)

func layer2() protocol {
	return protocol{
		name: "layer2", title: "Layer 2",
		notes: []string{
			fmt.Sprintf("the client asks every %v, by UDP, from a port of its own each time, and is watched for 10 s (-window) after each incident", askEvery),
			fmt.Sprintf("a gap is the longest time between two questions, one after another, that were answered: %v is none", askEvery),
		},
		measures: []measure{createdLayer2, cable, cableCluster, cableNoAPI, killed, restarted},
		take:     takeLayer2,
	}
}

// owned is a Service whose address some node answers for.
type owned struct {
	vip   netip.Addr
	owner *lab.Node
}

func takeLayer2(ctx context.Context, b *bench) error {
	for n := range b.rounds {
		if err := b.firstAnswer(ctx, fmt.Sprintf("first-%d", n)); err != nil {
			return err
		}
	}
	local, err := b.own(ctx, "local", corev1.ServiceExternalTrafficPolicyLocal)
	if err != nil {
		return err
	}
	cluster, err := b.own(ctx, "cluster", corev1.ServiceExternalTrafficPolicyCluster)
	if err != nil {
		return err
	}
	nothing := func() error { return nil }
	const server = "kube-apiserver"
	for range b.rounds {
		if err := b.watched(ctx, local, cable, local.owner.Unplug, local.owner.Plug); err != nil {
			return err
		}
		if err := b.watched(ctx, cluster, cableCluster, cluster.owner.Unplug, cluster.owner.Plug); err != nil {
			return err
		}
		err := b.watched(ctx, local, cableNoAPI, func() error {
			return errors.Join(b.Signal(server, syscall.SIGSTOP), local.owner.Unplug())
		}, func() error { return errors.Join(b.Signal(server, syscall.SIGCONT), local.owner.Plug()) })
		if err != nil {
			return err
		}
		if err := b.watched(ctx, local, killed, func() error { return b.killSpeaker(ctx, local.owner) }, nothing); err != nil {
			return err
		}
		err = b.watched(ctx, local, restarted, func() error {
			if _, err := b.Kubectl(ctx, "-n", b.namespace, "rollout", "restart", "daemonset/"+b.daemon); err != nil {
				return err
			}
			return b.ready(ctx)
		}, nothing)
		if err != nil {
			return err
		}
	}
	return nil
}

// firstAnswer creates a Service and asks for its address until there is an answer.
func (b *bench) firstAnswer(ctx context.Context, name string) (err error) {
	s, began := b.service(name, "layer2", corev1.ServiceExternalTrafficPolicyCluster), time.Now()
	vip, _, err := b.given(ctx, s)
	if err != nil {
		return err
	}
	w := watch(ctx, b.Client, vip)
	err = w.answer(ctx)
	for _, q := range w.end() {
		if q.answered {
			b.add(createdLayer2, q.sent.Sub(began))
			break
		}
	}
	return errors.Join(err, b.API.Delete(ctx, s))
}

// own creates a Service and finds who answers for its address.
func (b *bench) own(ctx context.Context, name string, policy corev1.ServiceExternalTrafficPolicy) (owned, error) {
	vip, _, err := b.given(ctx, b.service(name, "layer2", policy))
	if err != nil {
		return owned{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("not within a minute"))
	defer cancel()
	owner, err := b.Answerer(ctx, vip)
	return owned{vip, owner}, err
}

// watched watches the client while something happens and for a while after it, undoes it,
// and waits until all is as before.
func (b *bench) watched(ctx context.Context, o owned, m measure, happens, undo func() error) error {
	if err := b.calm(ctx, o); err != nil {
		return fmt.Errorf("before %s: %w", m, err)
	}
	w := watch(ctx, b.Client, o.vip)
	time.Sleep(b.window / 10)
	began := time.Now()
	err := happens()
	time.Sleep(b.window)
	asked := w.end()
	if err = errors.Join(err, undo()); err != nil {
		return fmt.Errorf("%s: %w", m, err)
	}
	took := gap(asked)
	if m == cableCluster {
		took = lastLost(asked, began)
	}
	b.add(m, took)
	return nil
}

// calm waits until the owner answers as before, everybody is ready, and nothing is lost.
func (b *bench) calm(ctx context.Context, o owned) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("not as before within 5 minutes"))
	defer cancel()
	for ctx.Err() == nil {
		if err := errors.Join(b.WaitReady(ctx), b.ready(ctx)); err != nil {
			return err
		}
		if now, err := b.Answerer(ctx, o.vip); err != nil || now != o.owner {
			time.Sleep(time.Second)
			continue
		}
		w := watch(ctx, b.Client, o.vip)
		time.Sleep(2 * time.Second)
		if lastLost(w.end(), time.Time{}) == 0 {
			return nil
		}
	}
	return context.Cause(ctx)
}
