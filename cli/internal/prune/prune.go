// Package prune implements the commands that remove unused things.
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

// Of describes one prune command.
type Of struct {
	// Path is the call to the engine.
	Path string
	// Warning is the text of the confirmation. If Images is set, %s in it becomes the kind of images.
	Warning string
	// Images gives the command --all, and Volumes --volumes.
	Images, Volumes bool
}

// Command turns cmd into a command that removes unused things.
func Command(a *app.App, cmd *cobra.Command, of Of) *cobra.Command {
	var all, volumes, force bool
	cmd.Use, cmd.Args = "prune", app.AtMost()
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !force {
			yes, err := confirm(a, of.warning(all, volumes))
			if err != nil || !yes {
				return err
			}
		}
		query := url.Values{"all": {strconv.FormatBool(all)}, "volumes": {strconv.FormatBool(volumes)}}
		return prune(cmd.Context(), a, of.Path, query)
	}
	if of.Images {
		cmd.Flags().BoolVarP(&all, "all", "a", false, "also remove images with a name")
	}
	if of.Volumes {
		cmd.Flags().BoolVar(&volumes, "volumes", false, "also remove volumes that no pod uses, with their contents")
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "do not ask for confirmation")
	return cmd
}

// warning returns the text to confirm.
func (of Of) warning(all, volumes bool) string {
	if !of.Images {
		return of.Warning
	}
	images := "images without a name that no pod uses"
	if all {
		images = "every image that no pod uses"
	}
	text := fmt.Sprintf(of.Warning, images)
	if volumes {
		text += " It removes all volumes that no pod uses, with their contents."
	}
	return text
}

// prune sends the request and prints what the engine removed.
func prune(ctx context.Context, a *app.App, path string, query url.Values) error {
	var p api.Pruned
	if err := a.Client.Call(ctx, "POST", path, query, nil, &p); err != nil {
		return err
	}
	for _, list := range []struct {
		what  string
		names []string
	}{{"pod", p.Pods}, {"image", p.Images}, {"volume", p.Volumes}, {"template", p.Templates}} {
		for _, name := range list.names {
			fmt.Fprintf(a.Out, "%s %s\n", list.what, name)
		}
	}
	fmt.Fprintf(a.Out, "freed %s\n", text.Size(p.Bytes))
	var err error
	for _, reason := range p.Failed {
		err = errors.Join(err, errors.New(text.Plain(reason)))
	}
	return err
}

// confirm asks for confirmation on the terminal. Without a terminal it returns an error that names --force.
func confirm(a *app.App, warning string) (bool, error) {
	if !tty.IsTerminal(a.In) {
		return false, errors.New("cannot ask for confirmation, because stdin is not a terminal: use --force")
	}
	fmt.Fprintf(a.Err, "%s Continue? [y/N] ", warning)
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
