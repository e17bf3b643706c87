// Package show is the demo: it brings the lab up without kube-proxy,
// installs the image and the chart, exposes a web server over layer 2 and BGP, shows
// which node announces what and which source the pods see, kills the announcing node and
// shows the client being served again.
package show

import (
	"context"
	"fmt"
	"io"
	"time"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

// Run tells the story, a chapter a function. An error says what this machine lacks, or which step failed.
func Run(ctx context.Context, out io.Writer) error {
	s := &stage{out: out, began: time.Now()}
	s.chapter("A bare-metal cluster without kube-proxy")
	c, err := product.Up(ctx, lab.Options{Progress: s})
	if err != nil {
		return err
	}
	show := &show{stage: s, Cluster: c}
	for _, chapter := range []func(context.Context) error{
		show.install, show.configure, show.expose, show.serve, show.lose, show.explore,
	} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

// show is the lab with Fairlead in it, and what is exposed.
type show struct {
	*stage
	*product.Cluster
	services []exposed
}

// install brings image and chart in, as a user would.
func (s *show) install(ctx context.Context) error {
	s.chapter("Fairlead by its image and its Helm chart")
	if err := s.step("image given to every node", func() error { return s.LoadImage(ctx) }); err != nil {
		return err
	}
	return s.step("helm install fairlead charts/fairlead --namespace "+product.Namespace+" --set apiServer.host="+s.ControlPlane.IPv4.String(), func() error {
		return s.Install(ctx, 4)
	})
}

// configure applies the samples that every reader can apply as well.
func (s *show) configure(ctx context.Context) error {
	s.chapter("Two pools, a router, and what to announce where")
	files := []string{"pool.yaml", "l2advertisement.yaml", "bgppeer.yaml", "bgpadvertisement.yaml"}
	for _, file := range files {
		if err := s.step("kubectl apply -f config/samples/"+file, func() error { return s.Sample(ctx, file) }); err != nil {
			return err
		}
	}
	return s.kubectl(ctx, "get", "ipaddresspools,bgppeers")
}

// explore tells what there is to try.
func (s *show) explore(context.Context) error {
	s.chapter("It is yours now")
	s.plain(`
  go run ./e2e/lab/cmd/lab kubectl get services -A          any kubectl command
  go run ./e2e/lab/cmd/lab kubectl get fairlead             everything of ours
  go run ./e2e/lab/cmd/lab kubectl explain bgppeer.spec     the manual
  go run ./e2e/lab/cmd/lab router show ip route bgp         what the router learned
  go run ./e2e/lab/cmd/lab in client curl -s http://%s/clientip
  go run ./e2e/lab/cmd/lab in node1 iptables-save -t nat    our rules
  make demo-down                                            removes every trace
`, s.services[0].address)
	return nil
}

// stage is where the demo speaks. It is a writer for the progress of others, too.
type stage struct {
	out   io.Writer
	began time.Time
}

// Write passes on the progress of the lab, indented.
func (s *stage) Write(text []byte) (int, error) {
	_, err := fmt.Fprintf(s.out, "  %s", text)
	return len(text), err
}

// chapter begins a part of the demo.
func (s *stage) chapter(title string) {
	fmt.Fprintf(s.out, "\n== %s (%.0f s)\n", title, time.Since(s.began).Seconds())
}

// say tells one line.
func (s *stage) say(format string, args ...any) { fmt.Fprintf(s.out, "  "+format+"\n", args...) }

// plain tells text as it is.
func (s *stage) plain(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

// step tells what is done before it is done, and how long it took after.
func (s *stage) step(what string, do func() error) error {
	began := time.Now()
	fmt.Fprintf(s.out, "  %s … ", what)
	if err := do(); err != nil {
		fmt.Fprintln(s.out, "failed")
		return fmt.Errorf("%s: %w", what, err)
	}
	fmt.Fprintf(s.out, "%.1f s\n", time.Since(began).Seconds())
	return nil
}
