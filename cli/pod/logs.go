package pod

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/podlog"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// logsFlags has the flags of logs that are not sent to the engine unchanged.
type logsFlags struct {
	since     time.Duration // before now
	sinceTime string        // RFC 3339
	prefix    bool
	stamps    bool
}

// Logs is the command logs.
func Logs(a *app.App) *cobra.Command {
	var opts api.LogOptions
	var f logsFlags
	var t app.Targets
	cmd := &cobra.Command{
		Use:   "logs POD | KIND/NAME [CONTAINER]",
		Short: "Print the logs of a pod's containers",
		Long: `Print the logs of all containers of a pod, or of one. With several containers, each line
begins with its container's name. A workload (deployment/NAME) and labels (-l) select
several pods. --previous prints the output from before the last restart. At least the
last 16 MiB of each container's output are kept.`,
		Example: `  bulkhead logs web
  bulkhead logs -f -c sidecar web
  bulkhead logs --tail 20 --timestamps web
  bulkhead logs -f deployment/web
  bulkhead logs -l app=web --since 10m
  bulkhead logs -p web                     # why it was restarted`,
		Args: cobra.MatchAll(t.Args, app.AtMost("POD", "CONTAINER")),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				if opts.Container != "" {
					return errors.New("the container is named twice: as an argument and with -c")
				}
				opts.Container, args = args[1], args[:1]
			}
			if err := f.apply(cmd, &opts, time.Now()); err != nil {
				return err
			}
			refs, err := a.Targets(cmd.Context(), t, args)
			if err != nil {
				return err
			}
			p := podlog.New(a.Out, a.Err)
			p.Stamps, p.Full = f.stamps, f.prefix
			p.Bare = cmd.Flags().Changed("prefix") && !f.prefix
			p.Several = len(refs) > 1
			defer p.Flush()
			return printLogs(cmd.Context(), a, p, refs, opts)
		},
	}
	f.add(cmd, &opts)
	t.Add(cmd)
	return cmd
}

// printLogs prints the output of pods, one after the other. With Follow it prints the output of all pods as it
// arrives.
func printLogs(ctx context.Context, a *app.App, p *podlog.Printer, refs []string, opts api.LogOptions) error {
	var mu sync.Mutex // guards the printer
	one := func(ref string) error {
		return a.Client.Stream(ctx, "GET", a.PodPath(ref, "logs"), opts.Query(), nil, func(m api.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if m.Started != nil {
				p.Add(m.Started.Pod.Name, m.Started.Containers)
			}
			if m.Log != nil {
				return p.Print(*m.Log)
			}
			return nil
		})
	}
	errs := make([]error, len(refs))
	var all sync.WaitGroup
	for i, ref := range refs {
		if opts.Follow {
			all.Go(func() { errs[i] = one(ref) })
		} else {
			errs[i] = one(ref)
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

func (f *logsFlags) add(cmd *cobra.Command, opts *api.LogOptions) {
	flags := cmd.Flags()
	flags.StringVarP(&opts.Container, "container", "c", "", "print only this container's output")
	flags.BoolVar(&opts.All, "all-containers", false, "also print init and ephemeral containers")
	flags.BoolVarP(&opts.Follow, "follow", "f", false, "keep printing until the pod ends")
	flags.BoolVarP(&opts.Previous, "previous", "p", false, "print the output from before the last restart")
	flags.DurationVar(&f.since, "since", 0, "print only output newer than this, such as 5s, 2m or 3h")
	flags.StringVar(&f.sinceTime, "since-time", "", "print only output from this time on (RFC 3339)")
	flags.Int64Var(&opts.Tail, "tail", -1, "number of last lines to print of each container; -1 prints all")
	flags.BoolVarP(&f.stamps, "timestamps", "t", false, "print the time of each line")
	flags.BoolVar(&f.prefix, "prefix", false, "print pod and container before each line; =false prints no names")
}

// apply checks the flags and sets the fields of o that depend on them.
func (f logsFlags) apply(cmd *cobra.Command, o *api.LogOptions, now time.Time) error {
	given := cmd.Flags().Changed
	switch {
	case o.All && o.Container != "":
		return errors.New("give either a container or --all-containers")
	case given("since") && given("since-time"):
		return errors.New("give either --since or --since-time")
	case given("since") && f.since <= 0:
		return fmt.Errorf("--since %v: must be greater than 0, such as 10m", f.since)
	case o.Tail < -1:
		return fmt.Errorf("--tail %d: must be a number of lines, or -1 for all", o.Tail)
	case given("since"):
		o.Since = now.Add(-f.since)
	case given("since-time"):
		var err error
		if o.Since, err = time.Parse(time.RFC3339Nano, f.sinceTime); err != nil {
			return fmt.Errorf("--since-time %q: must be a time such as 2026-01-02T15:04:05Z", f.sinceTime)
		}
	}
	return nil
}
