package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/podlog"
	"github.com/bulkhead-project/bulkhead/cli/internal/progress"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// runner follows one run request to its end.
type runner struct {
	app     *app.App
	timings bool
	stdin   bool // is passed on to the container that asks for it
	wait    bool // for detached pods to be ready
	bars    *progress.Bars
	printer *podlog.Printer
	step    string // the last step that was shown

	patience time.Duration // for wait
	timeout  seconds       // until a pod is stopped
	// attached is the attachment to the only interactive container.
	attached *attachment

	mu   sync.Mutex
	pods []api.Pod // in the order of their start
	code int
}

func (r *runner) run(ctx context.Context, req api.RunRequest) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req.Size = tty.Size(r.app.In)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		r.interrupts(ctx, signals, cancel)
	}()
	err := r.app.Client.Stream(ctx, "POST", "/v1/pods", nil, req, func(m api.Message) error { return r.message(ctx, req, m) })
	interrupted := ctx.Err() != nil
	if err != nil {
		cancel()
	}
	left := r.awaitSession(cancel)
	if err == nil && r.wait {
		err = r.awaitReady(ctx)
	}
	cancel()
	<-stopped
	r.bars.Close()
	if err == nil {
		err = left
	}
	if interrupted && errors.Is(err, context.Canceled) {
		return app.ExitError(130)
	}
	if err != nil {
		return err
	}
	if r.code != 0 {
		return app.ExitError(r.code)
	}
	return nil
}

// interrupts ends the pods with their grace period at the first signal, and without one at the second. Before any
// pod runs, a signal cancels the request, and the engine removes its pods.
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
		pods := slices.Clone(r.pods)
		r.mu.Unlock()
		if len(pods) == 0 || count > 1 {
			cancel()
			return
		}
		stop := api.StopRequest{}
		switch {
		case count > 0:
			stop.Grace = new(int64)
		case tty.IsTerminal(r.app.Err):
			fmt.Fprintln(r.app.Err, "\nbulkhead: stopping; Ctrl-C again kills")
		}
		for _, p := range pods {
			stops.Go(func() {
				if _, err := r.app.Stop(ctx, p.UID, stop); err != nil && !errors.Is(err, errdefs.ErrNotFound) && ctx.Err() == nil {
					fmt.Fprintln(r.app.Err, "bulkhead: stop: "+text.Plain(err.Error()))
				}
			})
		}
	}
}

func (r *runner) message(ctx context.Context, req api.RunRequest, m api.Message) error {
	switch {
	case m.Progress != nil:
		r.bars.Update(*m.Progress)
	case m.Step != "":
		if m.Step != r.step { // several pods may wait for the same step
			r.bars.SetStep(m.Step)
		}
		r.step = m.Step
	case m.Notice != "":
		r.bars.Clear()
		fmt.Fprintln(r.app.Err, "bulkhead: "+text.Plain(m.Notice))
	case m.Started != nil:
		r.bars.Close()
		r.mu.Lock()
		r.pods = append(r.pods, m.Started.Pod)
		r.mu.Unlock()
		r.printer.Add(m.Started.Pod.Name, m.Started.Containers)
		if r.timings {
			printTimings(r.app.Err, *m.Started)
		}
		if req.Detach {
			fmt.Fprintln(r.app.Out, m.Started.Pod.Name)
		} else if at := r.wanted(m.Started.Interactive); at != nil && r.attached == nil {
			r.attached = at
			r.attach(ctx, m.Started.Pod.UID, *m.Started.Interactive)
		} else if in := m.Started.Interactive; in != nil && in.Stdin && in.TTY {
			fmt.Fprintf(r.app.Err,
				"bulkhead: container %s of pod %s reads a terminal, but this command has none: use bulkhead attach -it -c %[1]s %[2]s\n",
				text.Plain(in.Container), text.Plain(m.Started.Pod.Name))
		}
	case m.Log != nil:
		return r.log(*m.Log)
	case m.Ended != nil:
		r.printer.Flush()
		if m.Ended.ExitCode != 0 {
			r.failed(*m.Ended)
		}
	}
	return nil
}

// failed reports a failed pod and keeps the exit code of the first one.
func (r *runner) failed(end api.Ended) {
	if r.code == 0 {
		r.code = end.ExitCode
	}
	text := endText(end)
	if text == "" && r.wait { // if no output of the pod explains it
		text = fmt.Sprintf("it has ended with code %d (bulkhead logs %s)", end.ExitCode, end.Pod)
	}
	if text != "" {
		fmt.Fprintf(r.app.Err, "bulkhead: pod %s: %s\n", end.Pod, text)
	}
}
