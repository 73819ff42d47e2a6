//go:build !amd64

package main

import "errors"

func ports() (string, error) { return "", errors.New("this processor has no I/O ports") }
