// Package cli is the command line: each command parses its arguments and
// delegates to the engine.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/version"
)

// ExitError ends the process with a code and without a message of its own: a
// container's exit code, for one.
type ExitError int

// Error says the code; Main does not print it.
func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// app is what the commands share.
type app struct {
	roots  dirs.Roots
	client *client.Client
	out    io.Writer
	err    io.Writer
	in     io.Reader
	detail bool
}

// Main runs the command line and returns the exit code: the container's for
// run, exec and wait, 127 for a command that is not there and 126 for one that
// cannot be run, else 0, or 1 for an error and 125 for an error of run's or
// exec's own, as podman does.
func Main(ctx context.Context, args []string) int {
	if len(args) > 0 && args[0] == guardCommand {
		return guardTerminal(args[1:])
	}
	a := &app{out: os.Stdout, err: os.Stderr, in: os.Stdin}
	root := a.root()
	root.SetArgs(args)
	usage(root)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	return a.exit(cmd, err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "bulkhead",
		Short: "Run every Kubernetes pod in a small virtual machine of its own",
		Long: `Bulkhead runs Kubernetes pods, each in a small virtual machine of its own,
without root, without KVM, without a daemon to set up and without configuration.`,
		Example: `  bulkhead run examples/hello.yaml
  bulkhead ps
  bulkhead exec -it web -- sh`,
		Version:       version.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		// The completion command is ours: without a shell that Linux users have not.
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		PersistentPreRunE: func(*cobra.Command, []string) error {
			var err error
			if a.roots, err = dirs.Default(); err != nil {
				return err
			}
			a.client = client.New(a.roots, client.StartProcess)
			return nil
		},
	}
	root.PersistentFlags().BoolVar(&a.detail, "detail", false, "print the whole of what stands behind an error")
	root.AddCommand(
		a.runCmd(), a.psCmd(), a.inspectCmd(), a.logsCmd(), a.execCmd(), a.debugCmd(), a.attachCmd(), a.cpCmd(), a.eventsCmd(), a.statsCmd(), a.topCmd(), a.portForwardCmd(), a.stopCmd(), a.startCmd(),
		a.pauseCmd(), a.resumeCmd(), a.rmCmd(), a.waitCmd(), a.imageCmd(), a.loginCmd(), a.logoutCmd(), a.templateCmd(),
		a.updateCmd(), a.checkCmd(), a.consoleCmd(), a.versionCmd(), a.reapCmd(),
		a.kubeCmd(), a.systemCmd(), a.completionCmd(),
	)
	a.complete(root)
	return root
}

// Command is the whole command line, for who writes its manual.
func Command() *cobra.Command { return (&app{out: os.Stdout, err: os.Stderr, in: os.Stdin}).root() }
