//go:build !linux

package storetest

func inMemory() string { return "" }
