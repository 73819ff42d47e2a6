package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// podPath is the path of a pod, or of something of it, on the engine.
func podPath(ref, what string) string {
	path := "/v1/pods/" + url.PathEscape(ref)
	if what != "" {
		path += "/" + what
	}
	return path
}

// together is how many pods a command ends, or starts, at once.
const together = 16

// eachPod runs one call for every pod named, several at once, and prints the names
// that succeeded in the order that they were given in; the errors of all are returned.
func (a *app) eachPod(refs []string, call func(ref string) error) error {
	results, free := make([]chan error, len(refs)), make(chan struct{}, together)
	for i, ref := range refs {
		results[i] = make(chan error, 1)
		go func() {
			free <- struct{}{}
			results[i] <- call(ref)
			<-free
		}()
	}
	var errs []error
	for i, ref := range refs {
		if err := <-results[i]; err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintln(a.out, ref)
	}
	return errors.Join(errs...)
}

// verb is a command that does one thing to each of the pods named.
func (a *app) verb(name, short, example string) *cobra.Command {
	return &cobra.Command{
		Use: name + " POD…", Short: short, Example: example, Args: atLeast("POD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eachPod(args, func(ref string) error {
				return a.client.Call(cmd.Context(), "POST", podPath(ref, name), nil, nil, nil)
			})
		},
	}
}

func (a *app) startCmd() *cobra.Command {
	return a.verb("start", "Start a stopped pod again, in a new machine", "  bulkhead start web")
}

func (a *app) pauseCmd() *cobra.Command {
	return a.verb("pause", "Stop a pod's machine where it stands", "  bulkhead pause web")
}

func (a *app) resumeCmd() *cobra.Command {
	return a.verb("resume", "Let a paused pod go on", "  bulkhead resume web")
}

func (a *app) stopCmd() *cobra.Command {
	var grace int64
	cmd := &cobra.Command{
		Use:        "stop POD…",
		Short:      "End a pod's containers, then its machine; the pod stays listed",
		SuggestFor: []string{"kill"},
		Example: `  bulkhead stop web
  bulkhead stop -t 0 web      # at once`,
		Args: atLeast("POD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := api.StopRequest{}
			if cmd.Flags().Changed("time") {
				if grace < 0 {
					return fmt.Errorf("--time %d: give 0 seconds or more", grace)
				}
				req.Grace = &grace
			}
			return a.eachPod(args, func(ref string) error { return a.stop(cmd.Context(), ref, req) })
		},
	}
	cmd.Flags().Int64VarP(&grace, "time", "t", 0, "seconds between TERM and KILL (default: the pod's terminationGracePeriodSeconds)")
	return cmd
}

func (a *app) stop(ctx context.Context, ref string, req api.StopRequest) error {
	return a.client.Call(ctx, "POST", podPath(ref, "stop"), nil, req, nil)
}

func (a *app) rmCmd() *cobra.Command {
	var force, all bool
	cmd := &cobra.Command{
		Use:     "rm POD…",
		Aliases: []string{"delete"},
		Short:   "Remove pods that have ended, or with --force running ones",
		Example: `  bulkhead rm web
  bulkhead rm -f web db
  bulkhead rm -f --all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if all {
				var pods []api.Pod
				if err := a.client.Call(cmd.Context(), "GET", "/v1/pods", nil, nil, &pods); err != nil {
					return err
				}
				for _, p := range pods {
					args = append(args, p.Namespace+"/"+p.Name)
				}
			} else if len(args) == 0 {
				return errors.New("name the pods to remove, or give --all")
			}
			q := url.Values{"force": {strconv.FormatBool(force)}}
			return a.eachPod(args, func(ref string) error {
				return a.client.Call(cmd.Context(), "DELETE", podPath(ref, ""), q, nil, nil)
			})
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "kill what still runs")
	cmd.Flags().BoolVarP(&all, "all", "a", false, "every pod")
	return cmd
}

func (a *app) waitCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "wait POD…",
		Short: "Wait until pods have ended, and exit with the first exit code that is not 0",
		Example: `  bulkhead run -d job.yaml && bulkhead wait job
  bulkhead wait extract transform load`,
		Args: atLeast("POD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			code := 0
			for _, ref := range args {
				var r api.Result
				if err := a.client.Call(cmd.Context(), "POST", podPath(ref, "wait"), nil, nil, &r); err != nil {
					return err
				}
				fmt.Fprintln(a.out, r.ExitCode)
				if code == 0 {
					code = r.ExitCode
				}
			}
			if code != 0 {
				return ExitError(code)
			}
			return nil
		},
	}
}
