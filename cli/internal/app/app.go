// Package app is what the commands share: the client, the streams, and how arguments
// are counted and pods are named.
package app

import (
	"fmt"
	"io"
	"net/url"

	"github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// PodPath is the path of a pod, or of something of it, on the engine.
func PodPath(ref, what string) string {
	path := "/v1/pods/" + url.PathEscape(ref)
	if what != "" {
		path += "/" + what
	}
	return path
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
}
