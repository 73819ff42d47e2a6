package image

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/output"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// step is an entry of the history in an image's configuration.
type step struct {
	Created    time.Time `json:"created"`
	CreatedBy  string    `json:"created_by"`
	Comment    string    `json:"comment,omitempty"`
	EmptyLayer bool      `json:"empty_layer,omitempty"`
}

func history(a *app.App) *cobra.Command {
	var f output.Format
	cmd := &cobra.Command{
		Use: "history IMAGE", Short: "Show the build steps of an image, the last one first", Args: app.Exactly("IMAGE"),
		Example: "  bulkhead image history localhost/app:dev",
		RunE: func(cmd *cobra.Command, args []string) error {
			var detail api.ImageDetail
			if err := a.Client.Call(cmd.Context(), "GET", "/v1/images/"+url.PathEscape(args[0]), nil, nil, &detail); err != nil {
				return err
			}
			var config struct {
				History []step `json:"history"`
			}
			if err := json.Unmarshal(detail.Config, &config); err != nil {
				return fmt.Errorf("read the history of image %s: %w", args[0], err)
			}
			steps := append([]step{}, config.History...)
			slices.Reverse(steps)
			return a.Show(cmd.Context(), f, steps, output.Views{Table: func(w io.Writer) error { return historyTable(w, steps) }})
		},
	}
	f.Add(cmd)
	return cmd
}

func historyTable(w io.Writer, steps []step) error {
	var rows [][]string
	for _, s := range steps {
		layer := "yes"
		if s.EmptyLayer {
			layer = "no"
		}
		by := text.Printable(strings.Join(strings.Fields(s.CreatedBy), " "))
		rows = append(rows, []string{text.Age(s.Created), layer, text.Dash(text.Printable(s.Comment)), text.Dash(by)})
	}
	return output.Table(w, "CREATED LAYER COMMENT BY", rows)
}
