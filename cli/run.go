package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func (a *app) runCmd() *cobra.Command {
	var req api.RunRequest
	var timings, quiet bool
	cmd := &cobra.Command{
		Use:        "run FILE…",
		Short:      "Run the pods of YAML documents (- for stdin)",
		SuggestFor: []string{"apply", "create", "play"},
		Long: `Run the pods of YAML documents, each in a virtual machine of its own.

In the foreground the output is streamed, Ctrl-C ends the pods with their grace
period (twice: at once), and the exit code is the container's. A foreground run
that is killed takes its pods with it.`,
		Example: `  bulkhead run examples/hello.yaml
  bulkhead run -d -p 8080:80 web.yaml
  bulkhead run --rm --network none - < job.yaml`,
		Args: atLeast("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := errors.Join(choice("network", req.Network, "user", "none"), choice("template", req.Template, "on", "off"),
				choice("accel", req.Accel, "auto", "kvm", "tcg"))
			if err != nil {
				return err
			}
			for _, name := range args {
				m, err := a.manifest(name)
				if err != nil {
					return err
				}
				req.Manifests = append(req.Manifests, m)
			}
			r := &runner{app: a, timings: timings, bars: newBars(a.err, quiet), printer: newPrinter(a.out, a.err)}
			return r.run(cmd.Context(), req)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&req.Detach, "detach", "d", false, "leave the pods running and print their names")
	f.BoolVar(&req.Remove, "rm", false, "remove each pod when it has ended")
	f.StringArrayVarP(&req.Ports, "publish", "p", nil, "publish a port: [IP:]HOST:POD (IP is 127.0.0.1 unless given)")
	f.StringVar(&req.Network, "network", "user", "network: user or none")
	f.BoolVar(&req.HostLoopback, "allow-host-loopback", false, "where this user can make no network namespace: reach the outside all the same, and the host's loopback with it")
	f.StringVar(&req.Template, "template", "on", "off boots the machine cold instead of cloning a template")
	f.StringVar(&req.Accel, "accel", "auto", "accelerator: auto, kvm or tcg")
	f.BoolVar(&timings, "timings", false, "print what each phase of the start cost")
	f.BoolVarP(&quiet, "quiet", "q", false, "no progress bars")
	return cmd
}

// maxManifest bounds a file of YAML documents, as the API server's requests.
const maxManifest = 3 << 20

func (a *app) manifest(name string) (api.Manifest, error) {
	var r = a.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return api.Manifest{}, fmt.Errorf("read the manifest: %w (run takes files with the YAML of pods)", err)
		}
		defer f.Close()
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	if err != nil {
		return api.Manifest{}, fmt.Errorf("read the manifest %s: %w", name, err)
	}
	if len(b) > maxManifest {
		return api.Manifest{}, fmt.Errorf("the manifest %s is larger than %d bytes", name, maxManifest)
	}
	return api.Manifest{Name: name, YAML: string(b)}, nil
}

// runner follows one run request to its end.
type runner struct {
	app     *app
	timings bool
	bars    *bars
	printer *printer
	step    string // the last that was said

	mu   sync.Mutex
	pods []string // UIDs, in the order of their start
	code int
}

func (r *runner) run(ctx context.Context, req api.RunRequest) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		r.interrupts(ctx, signals, cancel)
	}()
	err := r.app.client.Stream(ctx, "POST", "/v1/pods", nil, req, func(m api.Message) error { return r.message(req, m) })
	interrupted := ctx.Err() != nil
	cancel()
	<-stopped
	r.bars.close()
	if interrupted && errors.Is(err, context.Canceled) {
		return ExitError(130)
	}
	if err != nil {
		return err
	}
	if r.code != 0 {
		return ExitError(r.code)
	}
	return nil
}

// interrupts ends the pods with their grace at the first signal and without
// at the second. Before any pod runs, a signal ends the request itself, which
// takes its pods along.
func (r *runner) interrupts(ctx context.Context, signals <-chan os.Signal, cancel context.CancelFunc) {
	var stops sync.WaitGroup
	defer stops.Wait()
	for count := 0; ; count++ {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		r.mu.Lock()
		pods := append([]string(nil), r.pods...)
		r.mu.Unlock()
		if len(pods) == 0 || count > 1 {
			cancel()
			return
		}
		stop := api.StopRequest{}
		switch {
		case count > 0:
			stop.Grace = new(int64)
		case isTerminal(r.app.err):
			fmt.Fprintln(r.app.err, "\nbulkhead: stopping; Ctrl-C again kills")
		}
		for _, uid := range pods {
			stops.Go(func() {
				if err := r.app.stop(ctx, uid, stop); err != nil && !errors.Is(err, api.ErrNotFound) && ctx.Err() == nil {
					fmt.Fprintln(r.app.err, "bulkhead: stop: "+plain(err.Error()))
				}
			})
		}
	}
}

func (r *runner) message(req api.RunRequest, m api.Message) error {
	switch {
	case m.Progress != nil:
		r.bars.update(*m.Progress)
	case m.Step != "":
		if m.Step != r.step { // several pods may wait for the same
			r.bars.say(m.Step)
		}
		r.step = m.Step
	case m.Notice != "":
		r.bars.clear()
		fmt.Fprintln(r.app.err, "bulkhead: "+plain(m.Notice))
	case m.Started != nil:
		r.bars.close()
		r.mu.Lock()
		r.pods = append(r.pods, m.Started.Pod.UID)
		r.mu.Unlock()
		r.printer.add(m.Started.Pod.Name, m.Started.Containers)
		if r.timings {
			printPhases(r.app.err, m.Started.Phases)
		}
		if req.Detach {
			fmt.Fprintln(r.app.out, m.Started.Pod.Name)
		}
	case m.Log != nil:
		return r.printer.print(*m.Log)
	case m.Ended != nil:
		r.printer.flush()
		if m.Ended.ExitCode != 0 {
			if r.code == 0 {
				r.code = m.Ended.ExitCode
			}
			if text := endText(*m.Ended); text != "" {
				fmt.Fprintf(r.app.err, "bulkhead: pod %s: %s\n", m.Ended.Pod, text)
			}
		}
	}
	return nil
}

// endText says how a pod ended where its exit code does not say it all.
func endText(end api.Ended) string {
	switch end.Reason {
	case "", "Error", "Completed":
		return ""
	case "ContainerCannotRun":
		container, why, _ := strings.Cut(end.Message, ": ")
		return fmt.Sprintf("container %s cannot be run: %s (check its command, and what is in its image)", container, cannotRun(why))
	}
	if end.Message == "" {
		return end.Reason
	}
	return end.Reason + ": " + plain(end.Message)
}

func printPhases(w io.Writer, phases []api.Phase) {
	for _, p := range phases {
		fmt.Fprintf(w, "%9.1f ms  %s\n", float64(p.Microseconds)/1000, p.Name)
	}
}
