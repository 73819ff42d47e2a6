package session

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/podlog"
	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Debug is the command debug.
func Debug(a *app.App) *cobra.Command {
	var req api.DebugRequest
	var o Options
	cmd := &cobra.Command{
		Use:   "debug POD [-- COMMAND [ARG…]]",
		Short: "Add an ephemeral container to a running pod",
		Long: `Add an ephemeral container to a running pod, from an image with the tools that the pod's
own image lacks. With --target it sees the processes of one of the pod's containers.

With -i, the command attaches to it. Without -i, the command prints its name, which
bulkhead logs, exec and attach take with -c. The container is never restarted, and stays
in the pod until the pod ends.`,
		Example: `  bulkhead debug -it web -- sh
  bulkhead debug -it --image docker.io/library/busybox:1.36 --target nginx web
  bulkhead debug -it -c shell web -- sh && bulkhead logs -c shell web
  bulkhead debug --image localhost/tools:1 web -- tcpdump -i eth0`,
		Args: app.AtLeast("POD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Check(); err != nil {
				return err
			}
			req.Stdin, req.TTY, req.Command = o.Stdin, o.TTY, args[1:]
			if o.TTY {
				req.Size = tty.Size(a.In)
			}
			var made api.Debugged
			if err := a.Client.Call(cmd.Context(), "POST", a.PodPath(args[0], "debug"), nil, req, &made); err != nil {
				return err
			}
			if !o.Stdin {
				fmt.Fprintln(a.Out, made.Container)
				return nil
			}
			return debugger(cmd.Context(), a, args[0], made.Container, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Image, "image", "", "image (default: the image of the target, or of the pod's first container)")
	f.StringVar(&req.Target, "target", "", "container to see the processes of")
	f.StringVarP(&req.Name, "container", "c", "", "name of the new container (default: debugger- and random letters)")
	f.BoolVarP(&o.Stdin, "stdin", "i", false, "pass stdin to the container, and attach")
	f.BoolVarP(&o.TTY, "tty", "t", false, "give the container a terminal")
	return cmd
}

// debugger attaches to the new container. If the container has already ended, debugger prints its output.
func debugger(ctx context.Context, a *app.App, pod, container string, o Options) error {
	var err error
	if o.keys, err = parseKeys(detachKeys); err != nil {
		return err
	}
	var s api.Stream
	err = a.Client.Call(ctx, "POST", a.PodPath(pod, "attach"), nil, api.AttachRequest{Container: container, Stdin: o.Stdin}, &s)
	if err == nil {
		if o.TTY {
			fmt.Fprintf(a.Err, "bulkhead: container %s: press Enter if there is no prompt\n", container)
		}
		return join(ctx, a, s, o)
	}
	p := podlog.New(a.Out, a.Err)
	p.Add(pod, []string{container})
	query := url.Values{"container": {container}}
	logs := a.Client.Stream(ctx, "GET", a.PodPath(pod, "logs"), query, nil, func(m api.Message) error {
		if m.Log != nil {
			return p.Print(*m.Log)
		}
		return nil
	})
	p.Flush()
	if logs != nil {
		return errors.Join(err, logs)
	}
	return nil
}
