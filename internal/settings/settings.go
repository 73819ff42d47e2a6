// Package settings turns a table of a program's settings into flags, and back into arguments for another program with
// the same table.
package settings

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// Setting is one setting of a program. Value points to a string, a []string, a bool, an int or a time.Duration, and
// Preset is a value of that type. Other types get no flag (TestKinds).
type Setting struct {
	Key, Help     string
	Value, Preset any
}

// Table has all settings of a program, in the order of its documentation.
type Table []Setting

// Add adds the flags to a command's, and sets the values to their presets. A setting with several strings is a
// repeatable flag.
func (t Table) Add(f *pflag.FlagSet) {
	for _, s := range t {
		switch v := s.Value.(type) {
		case *string:
			f.StringVar(v, s.Key, s.Preset.(string), s.Help)
		case *[]string:
			f.StringArrayVar(v, s.Key, slices.Clone(s.Preset.([]string)), s.Help)
		case *bool:
			f.BoolVar(v, s.Key, s.Preset.(bool), s.Help)
		case *int:
			f.IntVar(v, s.Key, s.Preset.(int), s.Help)
		case *time.Duration:
			f.DurationVar(v, s.Key, s.Preset.(time.Duration), s.Help)
		}
	}
}

// Args returns arguments with the present values.
func (t Table) Args() (args []string) {
	for _, s := range t {
		flag := "--" + s.Key + "="
		switch v := s.Value.(type) {
		case *string:
			args = append(args, flag+*v)
		case *[]string:
			for _, one := range *v {
				args = append(args, flag+one)
			}
		case *bool:
			args = append(args, flag+strconv.FormatBool(*v))
		case *int:
			args = append(args, flag+strconv.Itoa(*v))
		case *time.Duration:
			args = append(args, flag+v.String())
		}
	}
	return args
}

// Absolute returns an error if a directory of a setting is not an absolute path.
func Absolute(key string, dirs ...string) error {
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("%s %q is not an absolute path", key, dir)
		}
	}
	return nil
}

// Logging returns an error for an invalid log-level or log-format.
func Logging(level, format string) error {
	if err := new(slog.Level).UnmarshalText([]byte(level)); err != nil {
		return fmt.Errorf("log-level %q must be debug, info, warn or error", level)
	}
	if format != "text" && format != "json" {
		return fmt.Errorf("log-format %q must be text or json", format)
	}
	return nil
}
