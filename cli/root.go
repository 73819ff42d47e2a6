// Package cli is the command line. The command of each noun is a package. It parses the arguments and delegates to
// the engine.
package cli

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/host"
	"github.com/bulkhead-project/bulkhead/cli/image"
	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
	"github.com/bulkhead-project/bulkhead/cli/pod"
	"github.com/bulkhead-project/bulkhead/cli/run"
	"github.com/bulkhead-project/bulkhead/cli/session"
	"github.com/bulkhead-project/bulkhead/cli/template"
	"github.com/bulkhead-project/bulkhead/cli/top"
	"github.com/bulkhead-project/bulkhead/cli/volume"
	"github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/version"
)

// Main runs the command line and returns the exit code. For run, exec and wait it is the container's. 127 means
// that a command does not exist, 126 that it cannot be run, and 125 an error of run or exec itself, as in podman.
// Other errors give 1.
func Main(ctx context.Context, args []string) int {
	if len(args) > 0 && args[0] == tty.GuardCommand {
		return tty.Guard(args[1:])
	}
	a := &app.App{Out: os.Stdout, Err: os.Stderr, In: os.Stdin}
	root := newRoot(a)
	root.SetArgs(args)
	usage(root)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	return exit(a, cmd, err)
}

func newRoot(a *app.App) *cobra.Command {
	root := &cobra.Command{
		Use:   "bulkhead",
		Short: "Run each Kubernetes pod in its own small VM",
		Long: `Bulkhead runs Kubernetes pods, each in its own small virtual machine (VM). It needs no
root, no KVM, no daemon to set up and no configuration.`,
		Example: `  bulkhead run examples/hello.yaml
  bulkhead ps
  bulkhead exec -it web -- sh`,
		Version:       version.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		// Bulkhead's own completion command leaves out PowerShell.
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		PersistentPreRunE: func(*cobra.Command, []string) error {
			var err error
			if a.Roots, err = dirs.Default(dirs.Run); err != nil {
				return err
			}
			a.Client = client.New(a.Roots, client.StartProcess)
			return nil
		},
	}
	root.PersistentFlags().BoolVar(&a.Detail, "detail", false, "print all details of an error")
	root.AddCommand(
		run.Command(a), pod.Ps(a), pod.Inspect(a), pod.Describe(a), pod.Logs(a), pod.Events(a), top.Stats(a), top.Top(a),
		session.Exec(a), session.Debug(a), session.Attach(a), session.Cp(a), session.PortForward(a), session.Console(a),
		pod.Stop(a), pod.Start(a), pod.Restart(a), pod.Kill(a), pod.Pause(a), pod.Resume(a), pod.Rm(a), pod.Wait(a), pod.Update(a), pod.Kube(a),
		image.Command(a), image.Login(a), image.Logout(a), template.Command(a), volume.Command(a),
		host.Check(a), host.CRI(a), host.Node(a), host.Version(a), host.Reap(a), host.System(a), completionCmd(a),
	)
	root.AddCommand(image.PodmanAliases(a)...)
	namespaces(a, root)
	asker{a}.complete(root)
	return root
}

// namespaces adds -n to each command that takes pods as its first arguments.
func namespaces(a *app.App, cmd *cobra.Command) {
	if _, args, _ := strings.Cut(cmd.Use, " "); strings.HasPrefix(args, "POD") {
		a.AddNamespace(cmd)
	}
	for _, sub := range cmd.Commands() {
		namespaces(a, sub)
	}
}

// Command returns the whole command line, for the generator of the manual pages.
func Command() *cobra.Command { return newRoot(&app.App{Out: os.Stdout, Err: os.Stderr, In: os.Stdin}) }
