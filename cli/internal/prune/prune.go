// Package prune makes the commands that remove what nobody needs.
package prune

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Command makes cmd one that has the engine remove what nobody needs. In the
// warning before that, %s is which images.
func Command(a *app.App, cmd *cobra.Command, path, warning string) *cobra.Command {
	var all, force bool
	cmd.Use, cmd.Args = "prune", app.AtMost()
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		images := "images without a name that no pod uses"
		if all {
			images = "every image that no pod uses"
		}
		if !force {
			yes, err := confirm(a, fmt.Sprintf(warning, images))
			if err != nil || !yes {
				return err
			}
		}
		return prune(cmd.Context(), a, path, all)
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also images with a name")
	cmd.Flags().BoolVarP(&force, "force", "f", false, "do not ask")
	return cmd
}

// prune has something removed, and tells what was.
func prune(ctx context.Context, a *app.App, path string, all bool) error {
	var p api.Pruned
	if err := a.Client.Call(ctx, "POST", path, url.Values{"all": {strconv.FormatBool(all)}}, nil, &p); err != nil {
		return err
	}
	for _, list := range []struct {
		what  string
		names []string
	}{{"pod", p.Pods}, {"image", p.Images}, {"template", p.Templates}} {
		for _, name := range list.names {
			fmt.Fprintf(a.Out, "%s %s\n", list.what, name)
		}
	}
	fmt.Fprintf(a.Out, "freed %s\n", text.Size(p.Bytes))
	return nil
}

// confirm asks on the terminal; where there is none it is an error that names
// --force.
func confirm(a *app.App, warning string) (bool, error) {
	if !tty.IsTerminal(a.In) {
		return false, errors.New("nobody can be asked here: give --force")
	}
	fmt.Fprintf(a.Err, "%s Go on? [y/N] ", warning)
	line, err := bufio.NewReader(a.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}
