"""The library that `import twinserve` offers: experiments as functions, records as DataFrames."""
