// Package app holds the code that commands share: the client, the streams, argument checks and the names of pods.
package app

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// AddNamespace adds the flag -n.
func (a *App) AddNamespace(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&a.Namespace, "namespace", "n", "", "namespace of the pods (default: any)")
}

// ExitError ends the process with an exit code and prints no message, for example for a container's exit code.
type ExitError int

// Error returns the code as text. Main does not print it.
func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// App holds the state that commands share.
type App struct {
	Roots  dirs.Roots
	Client *client.Client
	Out    io.Writer
	Err    io.Writer
	In     io.Reader
	Detail bool
	// Namespace applies to pods that are named without one. Empty means any namespace.
	Namespace string
}
