// Package body reads the JSON bodies of requests. huma would read a body by itself, and stop at its first error. Here a
// field of the wrong type is reported together with everything else that is wrong, and no submitted value is repeated.
//
// Reading is a walk over the text by the schema of the body, and then one decoding into its Go type. Only a text with
// errors is changed before it is decoded: what does not fit is cut out of it.
package body
