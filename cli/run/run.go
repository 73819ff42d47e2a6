// Package run implements the command run.
package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/podlog"
	"github.com/bulkhead-project/bulkhead/cli/internal/progress"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/cli/run/container"
	"github.com/bulkhead-project/bulkhead/cli/session"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Command is the command run.
func Command(a *app.App) *cobra.Command {
	var req api.RunRequest
	var image container.Flags
	r := &runner{app: a}
	quiet := false
	cmd := &cobra.Command{
		Use:        "run FILE… | IMAGE [COMMAND [ARG…]]",
		Short:      "Run the pods of YAML files (- for stdin), or an image",
		SuggestFor: []string{"apply", "create", "play"},
		Long: `Run the pods of YAML files, or a pod of one image, each in its own VM.

The first argument is a file if it ends in .yaml, .yml or .json, begins with / or a dot, or is -.
Anything else is an image: a name, which is pulled if it is missing, or the id of a stored image.
Flags with "image:" in their description apply only to images.

In the foreground the command prints the output and exits with the container's exit code. Ctrl-C
stops the pods with their grace period; a second Ctrl-C stops them at once. If the command is
killed, its pods end too. In a terminal it attaches to a container with a terminal (tty: true, or
-t).

A VM is as large as the limits of its containers together. Without a memory limit it has half of
the host's memory, at least 512 MiB and at most 2 GiB. Without a CPU limit it has one CPU. To
change these defaults, set BULKHEAD_DEFAULT_MEMORY and BULKHEAD_DEFAULT_CPUS where the engine is
started.`,
		Example: `  bulkhead run examples/hello.yaml
  bulkhead run -d --wait -p 8080:80 web.yaml
  bulkhead run --rm --network none - < job.yaml
  bulkhead run -it --rm docker.io/library/busybox:1.36 sh
  bulkhead run -it --rm -v ./src:/src:ro -v data:/data docker.io/library/busybox:1.36 sh
  bulkhead run -d --name web -p 8080:80 -e MODE=test --memory 256m docker.io/library/nginx:1.27`,
		Args: app.AtLeast("FILE or IMAGE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			isFile, note := sourceOf(args[0])
			if isFile {
				var err error
				if args, err = files(cmd, args); err != nil {
					return err
				}
			}
			err := errors.Join(app.Choice("network", req.Network, "user", "none"), app.Choice("template", req.Template, "on", "off"),
				app.Choice("warm", req.Warm, "on", "off"),
				app.Choice("accel", req.Accel, "auto", "kvm", "tcg"), r.valid(cmd, req))
			if err != nil {
				return err
			}
			if note != "" {
				fmt.Fprintln(a.Err, "bulkhead: "+text.Plain(note))
			}
			r.bars, r.printer = progress.New(a.Err, quiet), podlog.New(a.Out, a.Err)
			if isFile {
				if err := container.Refuse(cmd); err != nil {
					return err
				}
				req.Manifests, err = a.Manifests(args)
			} else {
				err = r.describe(cmd.Context(), &req, &image, args)
			}
			if err != nil {
				return err
			}
			req.Deadline = int64(r.timeout)
			return r.run(cmd.Context(), req)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // flags after the image belong to its command
	f.BoolVarP(&req.Detach, "detach", "d", false, "leave the pods running in the background and print their names")
	f.BoolVar(&req.IgnoreUnsupported, "ignore-unsupported", false, "skip objects that only a cluster can have: Service, Ingress, Namespace …")
	f.BoolVar(&r.wait, "wait", false, "with -d: return when the pods are ready, or have succeeded")
	f.DurationVar(&r.patience, "wait-timeout", defaultPatience, "with --wait: longest time to wait")
	f.Var(&r.timeout, "timeout", "stop each pod after this time, such as 300 (seconds) or 5m, and exit with 255; 0 means never")
	f.BoolVar(&req.Remove, "rm", false, "remove each pod when it has ended")
	f.StringArrayVarP(&req.Ports, "publish", "p", nil,
		"publish a port: [IP:]HOST:POD (default IP: 127.0.0.1; HOST 0 chooses a free port)")
	f.StringVar(&req.Network, "network", "user", "network of the pod: user or none")
	f.BoolVar(&req.HostLoopback, "allow-host-loopback", false,
		"if you cannot create network namespaces: allow a network that also reaches the host's loopback")
	f.StringVar(&req.Template, "template", "on", "on, or off to boot the VM instead of cloning a template")
	f.StringVar(&req.Warm, "warm", "on", "on, or off to clone the VM instead of forking it, so that it shares no memory layout with others")
	f.StringVar(&req.Accel, "accel", "auto", "accelerator: auto, kvm or tcg")
	f.BoolVar(&r.timings, "timings", false, "print how the VM was created and how long each phase of the start took")
	f.BoolVarP(&quiet, "quiet", "q", false, "do not show progress bars")
	image.Add(f)
	f.SetNormalizeFunc(app.CPUs)
	return cmd
}

// describe builds the request for a pod of one image. args has the image's name and the command.
func (r *runner) describe(ctx context.Context, req *api.RunRequest, image *container.Flags, args []string) error {
	if o := (session.Options{TTY: image.Stdin && image.TTY && !req.Detach}); o.Check() != nil {
		return o.Check()
	}
	image.SeccompDir = filepath.Join(r.app.Roots.Data, "seccomp")
	m, err := image.Manifest(args[0], args[1:])
	if err != nil {
		return err
	}
	if image.PublishAll {
		ports, err := exposed(ctx, r.app, args[0], r.bars)
		if err != nil {
			return err
		}
		req.Ports = append(req.Ports, ports...)
	}
	req.Manifests, req.Volumes, r.stdin = []api.Manifest{m}, image.Volumes(), image.Stdin
	return nil
}
