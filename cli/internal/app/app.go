// Package app is what the commands share: the client, the streams, and how arguments
// are counted and pods are named.
package app

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// AddNamespace gives a command -n.
func (a *App) AddNamespace(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&a.Namespace, "namespace", "n", "", "namespace of the pods (default: any)")
}

// ExitError ends the process with a code and without a message of its own: a
// container's exit code, for one.
type ExitError int

// Error says the code; Main does not print it.
func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// App is what the commands share.
type App struct {
	Roots  dirs.Roots
	Client *client.Client
	Out    io.Writer
	Err    io.Writer
	In     io.Reader
	Detail bool
	// Namespace is that of pods which are named without one, empty for every.
	Namespace string
}
