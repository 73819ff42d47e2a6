package session

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Exec is the command exec.
func Exec(a *app.App) *cobra.Command {
	var req api.ExecRequest
	var keys string
	var env []string
	cmd := &cobra.Command{
		Use:   "exec POD [--] COMMAND [ARG…]",
		Short: "Run a command in a container of a running pod",
		Long: `Run a command in a container of a running pod. The exit code is the command's. If this
command ends first (Ctrl-C without -t, or its terminal closes), the command in the pod
gets SIGHUP. It keeps running if it ignores the signal (nohup) or if you left it with
--detach-keys.`,
		Example: `  bulkhead exec web -- nginx -t
  bulkhead exec -it -c app web -- sh
  bulkhead exec -u 0 -w /tmp -e DEBUG=1 web -- env
  bulkhead exec -it --detach-keys ctrl-p,ctrl-q web -- sh`,
		Args: app.AtLeast("POD", "COMMAND"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if req.Command, err = lateFlags(cmd, args[1:]); err != nil {
				return err
			}
			if len(req.Command) == 0 {
				return fmt.Errorf("name the command to run in pod %s", args[0])
			}
			if req.Env, err = app.Environment(env); err != nil {
				return fmt.Errorf("--env %w", err)
			}
			o := Options{Stdin: req.Stdin, TTY: req.TTY}
			if o.keys, err = parseKeys(keys); err != nil {
				return err
			}
			if err := o.Check(); err != nil {
				return err
			}
			if o.TTY {
				req.Size = tty.Size(a.In)
			}
			var s api.Stream
			if err := a.Client.Call(cmd.Context(), "POST", a.PodPath(args[0], "exec"), nil, req, &s); err != nil {
				return err
			}
			return join(cmd.Context(), a, s, o)
		},
	}
	cmd.Flags().StringVarP(&req.Container, "container", "c", "", "container (default: the pod's first)")
	cmd.Flags().BoolVarP(&req.Stdin, "stdin", "i", false, "pass stdin to the command")
	cmd.Flags().BoolVarP(&req.TTY, "tty", "t", false, "give the command a terminal")
	cmd.Flags().StringVarP(&req.User, "user", "u", "",
		"user to run as: NAME or UID, optionally with :GROUP or :GID (default: the container's)")
	cmd.Flags().StringArrayVarP(&env, "env", "e", nil, "environment variable, NAME=VALUE; NAME alone takes this command's value")
	cmd.Flags().StringVarP(&req.Dir, "workdir", "w", "", "working directory (default: the container's)")
	cmd.Flags().StringVar(&keys, "detach-keys", "",
		"keys that detach and leave the command running, such as "+detachKeys+" (default: none, because these delay a shell's Ctrl-P)")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// lateFlags returns the command from the arguments after the pod's name. Flags may come first if -- ends them, as
// in kubectl: web -it -- sh.
func lateFlags(cmd *cobra.Command, args []string) (command []string, err error) {
	if args[0] == "--" {
		return args[1:], nil
	}
	if !strings.HasPrefix(args[0], "-") {
		return args, nil
	}
	usage := cmd.FlagErrorFunc()
	end := slices.Index(args, "--")
	if end < 0 {
		return nil, usage(cmd, fmt.Errorf("%s comes after the pod: put it before the pod, or -- before the command", args[0]))
	}
	flags := cmd.Flags()
	flags.SetInterspersed(true)
	if err := flags.Parse(args[:end]); err != nil {
		return nil, usage(cmd, err)
	}
	if flags.NArg() > 0 {
		return nil, usage(cmd, fmt.Errorf("%q must come after --", flags.Arg(0)))
	}
	return args[end+1:], nil
}
