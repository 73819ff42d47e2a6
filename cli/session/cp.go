package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
)

// Cp is the command cp.
func Cp(a *app.App) *cobra.Command {
	var container string
	cmd := &cobra.Command{
		Use:   "cp SOURCE TARGET",
		Short: "Copy files and directories to and from a container",
		Long: `Copy files and directories to and from a container. POD:PATH is a path in a container, -
is a tar stream on stdin or stdout, and any other argument is a path on this host. The
image needs no tools for it.

If TARGET is an existing directory, SOURCE is copied into it under its own name, else it
becomes TARGET. DIR/. means the contents of DIR. Links, permissions and times are kept.
Files in a container belong to the user that it runs as. Files from a container are not
trusted: links that lead out of the copy, devices and set-user-id bits are left out (-
keeps them all).`,
		Example: `  bulkhead cp web:/etc/nginx/nginx.conf .
  bulkhead cp -c app site/. web:/usr/share/nginx/html
  bulkhead cp web:/var/log - | tar tv
  tar c data | bulkhead cp - web:/srv`,
		Args: app.Exactly("SOURCE", "TARGET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, to := parsePlace(args[0]), parsePlace(args[1])
			ctx, stop := tty.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			var err error
			switch {
			case from.pod != "" && to.pod != "":
				return errors.New("cannot copy between two pods: copy from one pod to -, and from - to the other")
			case from.pod == "" && to.pod == "":
				return fmt.Errorf("neither %q nor %q names a pod: write POD:PATH", args[0], args[1])
			case from.path == "" || to.path == "":
				return errors.New("a path is missing: write POD:PATH")
			case from.pod != "":
				err = copyOut(ctx, a, from, to.path, container)
			default:
				err = copyIn(ctx, a, from.path, to, container)
			}
			if s := (tty.SignalError{}); errors.As(context.Cause(ctx), &s) {
				return app.ExitError(128 + int(s.Signal))
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&container, "container", "c", "", "container (default: the pod's first)")
	return cmd
}

// place is an argument of cp. pod is empty for this host.
type place struct{ pod, path string }

// parsePlace parses an argument of cp. One that begins with . or / is a path on this host, as in kubectl and
// podman.
func parsePlace(arg string) place {
	pod, path, isPod := strings.Cut(arg, ":")
	if !isPod || pod == "" || strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, ".") {
		return place{path: arg}
	}
	return place{pod, path}
}

// standard means stdin or stdout.
const standard = "-"
