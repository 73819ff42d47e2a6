package session

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Attach is the command attach.
func Attach(a *app.App) *cobra.Command {
	var req api.AttachRequest
	var o Options
	var keys string
	cmd := &cobra.Command{
		Use:   "attach POD",
		Short: "Attach to a running container",
		Long: `Attach to the streams of a running container's first process, from now on. Earlier output
is in bulkhead logs. The exit code is the container's.

-i needs a container with stdin: true, -t one with tty: true. Ctrl-P Ctrl-Q detaches from
a terminal, and the container keeps running. Without -t, Ctrl-C detaches.`,
		Example: `  bulkhead attach web
  bulkhead attach -it -c shell web
  bulkhead attach -it --detach-keys ctrl-],q web`,
		Args: app.Exactly("POD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if o.keys, err = parseKeys(keys); err != nil {
				return err
			}
			if err := o.Check(); err != nil {
				return err
			}
			req.Stdin = o.Stdin
			var s api.Stream
			if err := a.Client.Call(cmd.Context(), "POST", a.PodPath(args[0], "attach"), nil, req, &s); err != nil {
				return err
			}
			if o.TTY && !s.TTY {
				fmt.Fprintln(a.Err, "bulkhead: the container has no terminal: set tty: true in its spec")
				o.TTY = false
			}
			if o.TTY && o.Stdin {
				fmt.Fprintln(a.Err, "If you see no prompt, press Enter.")
			}
			return join(cmd.Context(), a, s, o)
		},
	}
	cmd.Flags().StringVarP(&req.Container, "container", "c", "", "container (default: the pod's first)")
	cmd.Flags().BoolVarP(&o.Stdin, "stdin", "i", false, "pass stdin to the container")
	cmd.Flags().BoolVarP(&o.TTY, "tty", "t", false, "use this terminal as the container's terminal")
	cmd.Flags().StringVar(&keys, "detach-keys", detachKeys, "keys that detach from a terminal; empty for none")
	return cmd
}
