package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/bulkhead-project/bulkhead/cli/internal/output"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Show prints v in the format f.
func (a *App) Show(ctx context.Context, f output.Format, v any, as output.Views) error {
	template, isPath := strings.CutPrefix(string(f), output.JSONPath)
	switch {
	case f == "wide" && as.Wide != nil:
		return as.Wide(a.Out)
	case f == "name" && as.Names != nil:
		for _, name := range as.Names() {
			fmt.Fprintln(a.Out, name)
		}
		return nil
	case isPath:
		return a.fillIn(ctx, template, v)
	case as.Names != nil && f.Valid() != nil:
		return fmt.Errorf("unknown output format %q: use json, yaml, wide, name or jsonpath=TEMPLATE", string(f))
	}
	return f.Print(a.Out, v, as.Table)
}

// fillIn fills in a template through the engine: the library for kubectl's template language would make the command
// line much larger. A list becomes the field items, as in kubectl.
func (a *App) fillIn(ctx context.Context, template string, v any) error {
	if reflect.ValueOf(v).Kind() == reflect.Slice {
		v = map[string]any{"items": v}
	}
	return a.fill(ctx, api.JSONPathRequest{Template: template}, v)
}

// ShowRows prints a line for each item of a list with a Go template, like podman's --format. The format "json"
// prints the whole list.
func (a *App) ShowRows(ctx context.Context, format string, list any) error {
	if format == "json" {
		return output.Format("json").Print(a.Out, list, nil)
	}
	return a.fill(ctx, api.JSONPathRequest{Template: format, Rows: true}, list)
}

func (a *App) fill(ctx context.Context, req api.JSONPathRequest, v any) (err error) {
	if req.Value, err = json.Marshal(v); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	var text api.JSONPathResult
	if err := a.Client.Call(ctx, "POST", "/v1/jsonpath", nil, req, &text); err != nil {
		return err
	}
	_, err = io.WriteString(a.Out, text.Text)
	return err
}
