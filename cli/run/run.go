// Package run is the command that runs the pods of documents.
package run

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/podlog"
	"github.com/bulkhead-project/bulkhead/cli/internal/progress"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Command is the command run.
func Command(a *app.App) *cobra.Command {
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
		Args: app.AtLeast("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := errors.Join(app.Choice("network", req.Network, "user", "none"), app.Choice("template", req.Template, "on", "off"),
				app.Choice("accel", req.Accel, "auto", "kvm", "tcg"))
			if err != nil {
				return err
			}
			for _, name := range args {
				m, err := a.Manifest(name)
				if err != nil {
					return err
				}
				req.Manifests = append(req.Manifests, m)
			}
			r := &runner{app: a, timings: timings, bars: progress.New(a.Err, quiet), printer: podlog.New(a.Out, a.Err)}
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
