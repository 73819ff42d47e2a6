// Package output prints values in the format that -o names.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Format is the value of the flag -o.
type Format string

// Add adds -o to a command that shows one thing.
func (f *Format) Add(cmd *cobra.Command) { f.addAs(cmd, "json, yaml or jsonpath=TEMPLATE") }

// AddList adds -o to a command that lists named things.
func (f *Format) AddList(cmd *cobra.Command) {
	f.addAs(cmd, "json, yaml, wide, name or jsonpath=TEMPLATE (a list is .items)")
}

func (f *Format) addAs(cmd *cobra.Command, formats string) {
	cmd.Flags().StringVarP((*string)(f), "output", "o", string(*f), "output format: "+formats)
}

// JSONPath is the prefix of a format that is a template in kubectl's language.
const JSONPath = "jsonpath="

// Valid returns an error for an unknown format.
func (f Format) Valid() error {
	switch f {
	case "", "json", "yaml":
		return nil
	}
	if strings.HasPrefix(string(f), JSONPath) {
		return nil
	}
	return fmt.Errorf("unknown output format %q: use json, yaml or jsonpath=TEMPLATE", string(f))
}

// Views are the ways to print a value besides JSON and YAML. Wide and Names may be nil.
type Views struct {
	Table, Wide func(io.Writer) error
	Names       func() []string
}

// Print writes v as JSON or YAML, or calls table if the format is empty.
func (f Format) Print(w io.Writer, v any, table func(io.Writer) error) error {
	switch f {
	case "":
		return table(w)
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	case "yaml":
		b, err := yaml.Marshal(v)
		if err != nil {
			return fmt.Errorf("print: %w", err)
		}
		_, err = w.Write(b)
		return err
	}
	return f.Valid()
}
