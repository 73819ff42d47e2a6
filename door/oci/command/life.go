package command

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/door/oci"
)

// bundleFlags are the flags of create and run.
type bundleFlags struct {
	bundle, console, pidFile     string
	noPivot, noKeyring, noSubset bool
	preserve                     int
}

func (b *bundleFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&b.bundle, "bundle", "b", ".", "directory of the bundle")
	f.StringVar(&b.console, "console-socket", "", "socket that gets the terminal")
	f.StringVar(&b.pidFile, "pid-file", "", "file for the process id")
	f.BoolVar(&b.noPivot, "no-pivot", false, "accepted; it has no effect")
	f.BoolVar(&b.noKeyring, "no-new-keyring", false, "accepted; it has no effect")
	f.BoolVar(&b.noSubset, "no-mount-fallback", false, "accepted; it has no effect")
	f.IntVar(&b.preserve, "preserve-fds", 0, "accepted; descriptors of the host do not reach the guest")
}

func (b *bundleFlags) options(id string) oci.CreateOptions {
	return oci.CreateOptions{
		ID: id, Bundle: b.bundle, PIDFile: b.pidFile, ConsoleSocket: b.console,
		Streams: [3]*os.File{os.Stdin, os.Stdout, os.Stderr},
	}
}

func (g *globals) create() *cobra.Command {
	b := &bundleFlags{}
	c := &cobra.Command{
		Use: "create ID", Short: "Create a container", Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			_, err := g.door.Create(c.Context(), b.options(args[0]))
			return err
		},
	}
	b.add(c)
	return c
}

func (g *globals) start() *cobra.Command {
	return &cobra.Command{
		Use: "start ID", Short: "Start a created container", Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error { return g.door.Start(c.Context(), args[0]) },
	}
}

// network is called by the surrogate of a container.
func (g *globals) network() *cobra.Command {
	return &cobra.Command{
		Use: "network ID", Short: "Take over the present interfaces of a started container", Args: exactly(1), Hidden: true,
		RunE: func(c *cobra.Command, args []string) error { return g.door.Network(c.Context(), args[0]) },
	}
}

func (g *globals) state() *cobra.Command {
	return &cobra.Command{
		Use: "state ID", Short: "Print a container's state", Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := g.door.State(args[0])
			if err != nil {
				return err
			}
			return printJSON(c, s)
		},
	}
}

func printJSON(c *cobra.Command, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		_, err = c.OutOrStdout().Write(append(b, '\n'))
	}
	return err
}

func (g *globals) kill() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "kill ID [SIGNAL]", Short: "Send a signal to a container", Args: atLeast(1),
		RunE: func(c *cobra.Command, args []string) error {
			text := "SIGTERM"
			if len(args) > 1 {
				text = args[1]
			}
			signal, err := parseSignal(text)
			if err != nil {
				return err
			}
			return g.door.Kill(c.Context(), args[0], signal, all)
		},
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "to all processes of the container")
	return c
}

// parseSignal parses a signal's number or name, with or without SIG.
func parseSignal(text string) (unix.Signal, error) {
	if n, err := strconv.Atoi(text); err == nil {
		if n < 0 || n > 64 {
			return 0, fmt.Errorf("signal %d: %w", n, unix.EINVAL)
		}
		return unix.Signal(n), nil
	}
	name := strings.ToUpper(text)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if n := unix.SignalNum(name); n != 0 {
		return n, nil
	}
	return 0, fmt.Errorf("unknown signal %q", text)
}

func (g *globals) delete() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use: "delete ID", Short: "Delete a stopped container", Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error { return g.door.Delete(c.Context(), args[0], force) },
	}
	c.Flags().BoolVarP(&force, "force", "f", false, "kill a running container first")
	return c
}

func (g *globals) run(code *int) *cobra.Command {
	b := &bundleFlags{}
	var detach, keep bool
	c := &cobra.Command{
		Use: "run ID", Short: "Create and start a container, and wait for its end", Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			*code, err = g.door.Run(c.Context(), oci.RunOptions{CreateOptions: b.options(args[0]), Detach: detach, Keep: keep})
			return err
		},
	}
	b.add(c)
	c.Flags().BoolVarP(&detach, "detach", "d", false, "do not wait for the end")
	c.Flags().BoolVar(&keep, "keep", false, "do not delete the container after its end")
	return c
}
