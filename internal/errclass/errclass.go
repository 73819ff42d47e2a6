// Package errclass gives an error a class that errors.Is finds and its message
// does not repeat.
package errclass

import (
	"errors"
	"fmt"
)

// With is err, which errors.Is finds to be of class as well. Its message is err's.
func With(class, err error) error { return fmt.Errorf("%w%w", silent{class}, err) }

// silent is a class that adds nothing to the message.
type silent struct{ error }

func (silent) Error() string   { return "" }
func (s silent) Unwrap() error { return s.error }

// Names are classes by the names with which they cross a socket, the weightiest first.
type Names []struct {
	Name  string
	Class error
}

// Of is the name of the first class that err is of, and "" for none.
func (n Names) Of(err error) string {
	for _, one := range n {
		if errors.Is(err, one.Class) {
			return one.Name
		}
	}
	return ""
}

// Named is the class of that name, and nil for an unknown one.
func (n Names) Named(name string) error {
	for _, one := range n {
		if one.Name == name {
			return one.Class
		}
	}
	return nil
}
